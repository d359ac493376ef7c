import type { TransferPieces } from "../../native/addon.js";

/** Cuts pieces into chunks no longer than `maxChunkBytes`, in the same order; pieces without bytes give none. */
export function cutChunks(pieces: TransferPieces, maxChunkBytes: number): TransferPieces {
  let count = 0;
  for (const length of pieces.length) count += Math.ceil(length / maxChunkBytes);
  const chunks = {
    file: new Uint32Array(count),
    offset: new Float64Array(count),
    length: new Float64Array(count),
    address: new BigUint64Array(count),
  };
  let at = 0;
  for (const [row, length] of pieces.length.entries()) {
    const [file, offset, address] = [pieces.file[row] ?? 0, pieces.offset[row] ?? 0, pieces.address[row] ?? 0n];
    for (let done = 0; done < length; done += maxChunkBytes) {
      chunks.file[at] = file;
      chunks.offset[at] = offset + done;
      chunks.length[at] = Math.min(maxChunkBytes, length - done);
      chunks.address[at] = address + BigInt(done);
      at++;
    }
  }
  return chunks;
}

/** Half-open rows of chunks that are in flight at one time, all of one file. */
export interface Window {
  readonly file: number;
  readonly begin: number;
  readonly end: number;
  readonly bytes: number;
}

/** Groups consecutive chunks of one file, up to so many bytes and chunks; a chunk that is longer by itself makes a window alone. */
export function cutWindows(chunks: TransferPieces, maxBytes: number, maxChunks: number): Window[] {
  const windows: Window[] = [];
  let begin = 0;
  let bytes = 0;
  for (const [row, length] of chunks.length.entries()) {
    const file = chunks.file[begin] ?? 0;
    if (row > begin && (chunks.file[row] !== file || bytes + length > maxBytes || row - begin >= maxChunks)) {
      windows.push({ file, begin, end: row, bytes });
      [begin, bytes] = [row, 0];
    }
    bytes += length;
  }
  if (chunks.length.length > begin) windows.push({ file: chunks.file[begin] ?? 0, begin, end: chunks.length.length, bytes });
  return windows;
}
