import { entryOf } from "../../columns.js";
import type { TransferPieces } from "../../native/addon.js";
import { roundDown } from "../../units.js";

/**
 * Cuts pieces into chunks no longer than `maxChunkBytes`, in the same order; pieces without bytes
 * give none.
 * @param blockBytes of each file: chunks end at multiples of it where they are long enough, so that
 *   the next can be read directly. Default: no matter
 */
export function cutChunks(pieces: TransferPieces, maxChunkBytes: number, blockBytes?: ArrayLike<number>): TransferPieces {
  const [file, offset, length, address]: [number[], number[], number[], bigint[]] = [[], [], [], []];
  for (const [row, bytes] of pieces.length.entries()) {
    const [source, begin, target] = [entryOf(pieces.file, row), entryOf(pieces.offset, row), entryOf(pieces.address, row)];
    const block = blockBytes === undefined ? 1 : entryOf(blockBytes, source);
    for (let done = 0; done < bytes; ) {
      const position = begin + done;
      const bound = roundDown(position + maxChunkBytes, block);
      const limit = bound > position ? bound - position : maxChunkBytes;
      const chunk = bytes - done <= maxChunkBytes ? bytes - done : limit;
      file.push(source);
      offset.push(position);
      length.push(chunk);
      address.push(target + BigInt(done));
      done += chunk;
    }
  }
  return {
    file: Uint32Array.from(file),
    offset: Float64Array.from(offset),
    length: Float64Array.from(length),
    address: BigUint64Array.from(address),
  };
}

/** Half-open rows of chunks that are in flight at one time, all of one file. */
export interface Window {
  readonly file: number;
  readonly begin: number;
  readonly end: number;
  readonly bytes: number;
}

/**
 * Groups consecutive chunks of one file, up to so many bytes and chunks; a chunk that is longer by
 * itself makes a window alone.
 */
export function cutWindows(chunks: TransferPieces, maxBytes: number, maxChunks: number): Window[] {
  const windows: Window[] = [];
  let begin = 0;
  let bytes = 0;
  for (const [row, length] of chunks.length.entries()) {
    const file = entryOf(chunks.file, begin);
    if (row > begin && (chunks.file[row] !== file || bytes + length > maxBytes || row - begin >= maxChunks)) {
      windows.push({ file, begin, end: row, bytes });
      [begin, bytes] = [row, 0];
    }
    bytes += length;
  }
  if (chunks.length.length > begin) windows.push({ file: entryOf(chunks.file, begin), begin, end: chunks.length.length, bytes });
  return windows;
}
