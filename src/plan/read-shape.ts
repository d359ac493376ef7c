import type { ReadShape } from "../transfer/driver-bytes.js";
import type { PieceColumns } from "./ranges.js";

/** A read across the bound of two pieces that are neighbours in the file alone takes this much through a buffer. */
const boundBytes = 512 * 1024;

/**
 * How the pieces of a plan are read. Direct reads need a buffer for pieces whose addresses are not congruent to their file offsets modulo what
 * direct I/O asks of memory, and where a block of the file goes to two places.
 */
export function readShape(
  pieces: PieceColumns,
  memoryAlign: (shard: number) => number,
  rest: Omit<ReadShape, "bytes" | "ranges" | "bouncedBytes">,
): ReadShape {
  let [bytes, ranges, bouncedBytes] = [0, 0, 0];
  let end = -1;
  for (let at = 0; at < pieces.offset.length; at++) {
    const [shard, offset, length] = [pieces.shard[at] ?? 0, pieces.offset[at] ?? 0, pieces.length[at] ?? 0];
    const adjacent = offset === end && pieces.shard[at - 1] === shard;
    if (!adjacent) ranges++;
    if (((pieces.addressOffset[at] ?? 0) - offset) % memoryAlign(shard) !== 0) bouncedBytes += length;
    else if (adjacent) bouncedBytes += boundBytes;
    bytes += length;
    end = offset + length;
  }
  return { ...rest, bytes, ranges, bouncedBytes: Math.min(bouncedBytes, bytes) };
}
