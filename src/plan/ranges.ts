import { entryOf } from "../columns.js";
import type { TensorColumns } from "../native/addon.js";

/** Selected tensors of one shard: `rows[begin .. end)`. */
export interface ShardRows {
  readonly shard: number;
  readonly begin: number;
  readonly end: number;
}

/**
 * Parallel arrays, one entry per contiguous stretch of a file with its place in memory; sorted by
 * (shard, offset).
 */
export interface PieceColumns {
  readonly shard: Uint32Array;
  /** File offset in bytes. */
  readonly offset: Float64Array;
  /** Bytes, never 0. */
  readonly length: Float64Array;
  /** Bytes from the base of the allocation. */
  readonly addressOffset: Float64Array;
}

/** Grows {@link PieceColumns} one entry at a time. */
export class PieceBuilder {
  readonly shard: number[] = [];
  readonly offset: number[] = [];
  readonly length: number[] = [];
  readonly addressOffset: number[] = [];

  push(shard: number, offset: number, length: number, addressOffset: number): void {
    this.shard.push(shard);
    this.offset.push(offset);
    this.length.push(length);
    this.addressOffset.push(addressOffset);
  }

  get count(): number {
    return this.offset.length;
  }

  columns(): PieceColumns {
    return {
      shard: new Uint32Array(this.shard),
      offset: new Float64Array(this.offset),
      length: new Float64Array(this.length),
      addressOffset: new Float64Array(this.addressOffset),
    };
  }
}

/**
 * The selected tensors by shard; shards without any are left out. Rows ascend, and with them
 * shards: the end of each is searched for.
 */
export function groupByShard(columns: TensorColumns, rows: Uint32Array): ShardRows[] {
  const groups: ShardRows[] = [];
  let begin = 0;
  while (begin < rows.length) {
    const shard = entryOf(columns.shard, entryOf(rows, begin));
    let end = begin + 1;
    let last = rows.length;
    while (end < last) {
      const middle = (end + last) >>> 1;
      if (entryOf(columns.shard, entryOf(rows, middle)) <= shard) end = middle + 1;
      else last = middle;
    }
    groups.push({ shard, begin, end });
    begin = end;
  }
  return groups;
}

/**
 * A contiguous range of a file and the selected tensors in it, `rows[begin .. end)`; empty tensors
 * between two ranges belong to the earlier.
 */
export interface FileRange {
  readonly offset: number;
  readonly length: number;
  readonly begin: number;
  readonly end: number;
  /**
   * Largest alignment in bytes that a tensor of the range should have, and the file offset of the
   * first such tensor.
   */
  readonly alignBytes: number;
  readonly alignedAt: number;
}

/**
 * The ranges of one shard: neighbours in the file are one range. A shard whose selected tensors are
 * all empty has none. `alignOfDtype` has one entry per row of the dtype table.
 */
export function mergeRanges(columns: TensorColumns, rows: Uint32Array, alignOfDtype: Uint32Array, group: ShardRows): FileRange[] {
  const ranges: FileRange[] = [];
  let begin = group.begin;
  let offset = 0;
  let length = 0;
  let alignBytes = 0;
  let alignedAt = 0;
  for (let at = group.begin; at < group.end; at++) {
    const row = entryOf(rows, at);
    const tensorLength = entryOf(columns.length, row);
    if (tensorLength === 0) continue;
    const tensorOffset = entryOf(columns.offset, row);
    if (length > 0 && tensorOffset !== offset + length) {
      ranges.push({ offset, length, begin, end: at, alignBytes, alignedAt });
      begin = at;
      length = 0;
      alignBytes = 0;
    }
    if (length === 0) offset = tensorOffset;
    length += tensorLength;
    const align = entryOf(alignOfDtype, entryOf(columns.dtype, row));
    if (align > alignBytes) {
      alignBytes = align;
      alignedAt = tensorOffset;
    }
  }
  if (length > 0) ranges.push({ offset, length, begin, end: group.end, alignBytes, alignedAt });
  return ranges;
}
