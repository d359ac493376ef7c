import { entryOf } from "../columns.js";
import type { ShardColumns } from "../native/addon.js";
import { addon } from "../native/load.js";
import type { ReadShape } from "../transfer/driver-bytes.js";
import type { PieceColumns } from "./ranges.js";

/** What decides how pieces of a shard are read. */
interface ShardFacts extends Pick<ShardColumns, "readAheadBytes" | "cachedUnderAuto"> {
  /** What direct I/O asks of memory. */
  readonly memoryAlign: Uint32Array;
}

/**
 * How the pieces of a plan are read. Direct reads need a buffer for pieces whose addresses are not
 * congruent to their file offsets modulo what direct I/O asks of memory, and where a block of the
 * file goes to two places.
 */
export function readShape(
  pieces: PieceColumns,
  shards: ShardFacts,
  rest: Pick<ReadShape, "threads" | "maxChunkBytes" | "memory">,
): ReadShape {
  const { minDirectBytes, maxBounceBytes } = addon().laneLimits();
  let [bytes, ranges, bouncedBytes, cachedBytes, readAheadBytes] = [0, 0, 0, 0, 0];
  let [begin, end] = [-1, -1];
  for (let at = 0; at < pieces.offset.length; at++) {
    const [shard, offset, length] = [entryOf(pieces.shard, at), entryOf(pieces.offset, at), entryOf(pieces.length, at)];
    const adjacent = offset === end && pieces.shard[at - 1] === shard;
    if (!adjacent) {
      ranges++;
      begin = offset;
    }
    if ((entryOf(pieces.addressOffset, at) - offset) % entryOf(shards.memoryAlign, shard) !== 0) bouncedBytes += length;
    // The block across the bound is bounced whole, also where both sides are congruent by
    // themselves.
    if (adjacent) bouncedBytes += maxBounceBytes;
    bytes += length;
    end = offset + length;
    readAheadBytes = Math.max(readAheadBytes, entryOf(shards.readAheadBytes, shard));
    const rangeEnds = pieces.offset[at + 1] !== end || pieces.shard[at + 1] !== shard;
    if (shards.cachedUnderAuto[shard] === 1) cachedBytes += length;
    else if (rangeEnds && end - begin < minDirectBytes) cachedBytes += end - begin;
  }
  return { ...rest, bytes, ranges, bouncedBytes: Math.min(bouncedBytes, bytes), cachedBytes, readAheadBytes };
}
