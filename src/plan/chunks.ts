import { errorOf } from "../errors.js";
import { formatBytes, roundDown } from "../units.js";
import { PieceBuilder, type PieceColumns } from "./ranges.js";

/** Longest chunk unless asked otherwise: long enough that a buffered read of it runs at full speed, short enough to share work evenly. */
export const defaultMaxChunkBytes = 8 * 2 ** 20;
/** Shortest limit that can be asked for: a page, below which every read is mostly overhead. */
export const minMaxChunkBytes = 4096;

/**
 * Cuts pieces into chunks of at most `maxChunkBytes`. Inner bounds are file offsets at a multiple of what direct I/O needs (`blockBytes` of
 * each shard), so that at most the head and the tail of a piece have to be read buffered. Each byte is in exactly one chunk.
 * @throws ERR_OPTION_INVALID when `maxChunkBytes` is shorter than one block of a shard
 */
export function cutChunks(pieces: PieceColumns, maxChunkBytes: number, blockBytes: (shard: number) => number): PieceColumns {
  const chunks = new PieceBuilder();
  for (let at = 0; at < pieces.offset.length; at++) {
    const shard = pieces.shard[at] ?? 0;
    const begin = pieces.offset[at] ?? 0;
    const end = begin + (pieces.length[at] ?? 0);
    const base = pieces.addressOffset[at] ?? 0;
    const block = blockBytes(shard);
    let position = begin;
    while (end - position > maxChunkBytes) {
      const bound = roundDown(position + maxChunkBytes, block);
      if (bound <= position) throw tooShort(maxChunkBytes, block);
      chunks.push(shard, position, bound - position, base + (position - begin));
      position = bound;
    }
    chunks.push(shard, position, end - position, base + (position - begin));
  }
  return chunks.columns();
}

function tooShort(maxChunkBytes: number, block: number): Error {
  return errorOf(
    "ERR_OPTION_INVALID",
    `maxChunkBytes must be at least ${block} (${formatBytes(block)}), the block of direct I/O on this file system, got ${maxChunkBytes}`,
    { facts: { option: "maxChunkBytes", value: maxChunkBytes } },
  );
}
