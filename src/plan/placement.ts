import { entryOf } from "../columns.js";
import type { TensorColumns } from "../native/addon.js";
import { hugePageBytes, roundDown, roundUp } from "../units.js";
import type { FileRange, PieceBuilder, ShardRows } from "./ranges.js";

/**
 * How the tensors of a shard stand in memory.
 * - `packed`: in the file's order without gaps, so that whole ranges are read straight to their
 *   place;
 * - `aligned`: each tensor at a multiple of its alignment, in the file's order;
 * - `auto`: packed where every selected tensor of the shard is then at a multiple of its alignment,
 *   else aligned.
 */
export const placementNames = ["auto", "packed", "aligned"] as const;
export type Placement = (typeof placementNames)[number];

/** What the placement of one shard starts from. Rows are those of the whole selection. */
export interface ShardLayout {
  readonly columns: TensorColumns;
  readonly rows: Uint32Array;
  readonly group: ShardRows;
  readonly ranges: readonly FileRange[];
  /**
   * Alignment in bytes that tensors of each dtype should have, by row of the dtype table; powers of
   * two.
   */
  readonly alignOfDtype: Uint32Array;
  /** Multiples that direct I/O needs of file offsets and of memory addresses, in bytes. */
  readonly offsetAlign: number;
  readonly memoryAlign: number;
  /** First free byte of the allocation. */
  readonly start: number;
}

/**
 * Direct reads that fill whole pages are up to half as fast again as those that straddle them, and
 * reads that fill one huge page are a single segment to the device. Padding is only spent where it
 * is less than a hundredth of the range.
 */
const smallPageBytes = 4096;
const largeRangeBytes = 4 * 2 ** 20;
const hugeRangeBytes = 256 * 2 ** 20;

/** Memory that direct reads save a copy for is worth this share of it in padding: 1/16. */
const paddingShare = 16;

/** A residue class of addresses: those congruent to `fileOffset + residue` modulo `period`. */
interface Congruence {
  readonly period: number;
  readonly residue: number;
}

/**
 * Places the tensors of a range in the file's order. Writes their address offsets and gives the end
 * of what is used.
 *
 * The base is the first free address that fulfils both: the tensor with the largest alignment is
 * aligned, and the address is congruent to the file offset modulo the memory alignment of direct
 * I/O. Both moduli are powers of two, so by the Chinese remainder theorem both hold at once exactly
 * when they agree modulo the smaller; where they do not, direct I/O wins. A range without one whole
 * block is never read directly.
 */
export function placePacked(layout: ShardLayout, addressOffset: Float64Array, pieces: PieceBuilder): number {
  let cursor = layout.start;
  if (layout.ranges.length === 0) placeEmpties(layout, addressOffset, layout.group.begin, layout.group.end, cursor);
  for (const range of layout.ranges) {
    const base = firstCongruent(cursor, range.offset, packedCongruence(layout, range));
    placeRange(layout, range, base, addressOffset, pieces);
    cursor = base + range.length;
  }
  return cursor;
}

/** True when packed placement puts every tensor of the shard at a multiple of its alignment. */
export function packedIsAligned(layout: ShardLayout): boolean {
  const { columns, rows } = layout;
  for (const range of layout.ranges) {
    // Either the period is no smaller than any alignment in the range, or the reference tensor
    // fails here as it does in memory.
    const { residue } = packedCongruence(layout, range);
    for (let at = range.begin; at < range.end; at++) {
      const row = entryOf(rows, at);
      if (entryOf(columns.length, row) > 0 && (entryOf(columns.offset, row) + residue) % alignOf(layout, row) !== 0) return false;
    }
  }
  return true;
}

/**
 * Places each tensor at its alignment. Neighbours that stand side by side anyway stay one piece, so
 * that they are read as one.
 */
export function placeAligned(layout: ShardLayout, addressOffset: Float64Array, pieces: PieceBuilder): number {
  const { columns, rows, group, memoryAlign } = layout;
  let cursor = layout.start;
  let pieceOffset = 0;
  let pieceLength = 0;
  for (let at = group.begin; at < group.end; at++) {
    const row = entryOf(rows, at);
    const align = alignOf(layout, row);
    const length = entryOf(columns.length, row);
    if (length === 0) {
      addressOffset[at] = roundDown(cursor, align);
      continue;
    }
    const offset = entryOf(columns.offset, row);
    // A large tensor also gets an address that direct reads can reach without a copy, where its
    // alignment allows one.
    const congruent = memoryAlign > align && offset % align === 0 && length >= paddingShare * memoryAlign;
    const address = congruent ? firstCongruent(cursor, offset, { period: memoryAlign, residue: 0 }) : roundUp(cursor, align);
    if (pieceLength > 0 && (address !== cursor || offset !== pieceOffset + pieceLength)) {
      pieces.push(group.shard, pieceOffset, pieceLength, cursor - pieceLength);
      pieceLength = 0;
    }
    if (pieceLength === 0) pieceOffset = offset;
    pieceLength += length;
    addressOffset[at] = address;
    cursor = address + length;
  }
  if (pieceLength > 0) pieces.push(group.shard, pieceOffset, pieceLength, cursor - pieceLength);
  return cursor;
}

/** True when every selected tensor of the shard stands at a multiple of its alignment. */
export function isAligned(layout: ShardLayout, addressOffset: Float64Array): boolean {
  const { rows, group } = layout;
  for (let at = group.begin; at < group.end; at++) {
    if (entryOf(addressOffset, at) % alignOf(layout, entryOf(rows, at)) !== 0) return false;
  }
  return true;
}

/**
 * Places a shard for one private mapping of its file, from its first selected byte to its last:
 * every address is congruent to its file offset modulo the page size, and no page is shared with
 * another shard. Bytes in between that nobody selected cost address space only.
 */
export function placeMapped(layout: ShardLayout, pageBytes: number, addressOffset: Float64Array, pieces: PieceBuilder): number {
  const { columns, rows, group, ranges } = layout;
  const first = ranges[0];
  const last = ranges.at(-1);
  if (first === undefined || last === undefined) {
    placeEmpties(layout, addressOffset, group.begin, group.end, layout.start);
    return layout.start;
  }
  // The start is a multiple of the page size: 0, or what the shard before gave.
  const base = layout.start + (first.offset % pageBytes);
  const length = last.offset + last.length - first.offset;
  let reached = base;
  for (let at = group.begin; at < group.end; at++) {
    const row = entryOf(rows, at);
    const tensorLength = entryOf(columns.length, row);
    if (tensorLength === 0) {
      placeEmpties(layout, addressOffset, at, at + 1, reached);
      continue;
    }
    const address = base + (entryOf(columns.offset, row) - first.offset);
    addressOffset[at] = address;
    reached = address + tensorLength;
  }
  pieces.push(group.shard, first.offset, length, base);
  return roundUp(base + length, pageBytes);
}

function alignOf({ columns, alignOfDtype }: ShardLayout, row: number): number {
  return entryOf(alignOfDtype, entryOf(columns.dtype, row));
}

function packedCongruence(layout: ShardLayout, range: FileRange): Congruence {
  const block = Math.max(layout.offsetAlign, layout.memoryAlign);
  const hasBlock = roundUp(range.offset, block) + block <= range.offset + range.length;
  const memoryAlign = hasBlock ? layout.memoryAlign : 1;
  const { alignBytes, alignedAt } = range;
  if (range.length >= largeRangeBytes && hasBlock && alignedAt % alignBytes === 0) {
    // Where tensors are aligned in the file already, addresses can follow the file as far as the
    // device likes best.
    const liked = range.length >= hugeRangeBytes ? hugePageBytes : Math.max(memoryAlign, smallPageBytes);
    return { period: Math.max(liked, alignBytes), residue: 0 };
  }
  if (alignBytes <= memoryAlign || alignedAt % memoryAlign !== 0) return { period: memoryAlign, residue: 0 };
  return { period: alignBytes, residue: (alignBytes - (alignedAt % alignBytes)) % alignBytes };
}

function firstCongruent(cursor: number, fileOffset: number, { period, residue }: Congruence): number {
  const wanted = (fileOffset + residue) % period;
  return cursor + ((wanted - (cursor % period) + period) % period);
}

function placeRange(layout: ShardLayout, range: FileRange, base: number, addressOffset: Float64Array, pieces: PieceBuilder): void {
  const { columns, rows } = layout;
  let reached = base;
  for (let at = range.begin; at < range.end; at++) {
    const row = entryOf(rows, at);
    const length = entryOf(columns.length, row);
    if (length === 0) {
      placeEmpties(layout, addressOffset, at, at + 1, reached);
      continue;
    }
    const address = base + (entryOf(columns.offset, row) - range.offset);
    addressOffset[at] = address;
    reached = address + length;
  }
  pieces.push(layout.group.shard, range.offset, range.length, base);
}

/** Empty tensors get an address too: the last aligned one that is not past what is used. */
function placeEmpties(layout: ShardLayout, addressOffset: Float64Array, begin: number, end: number, cursor: number): void {
  for (let at = begin; at < end; at++) addressOffset[at] = roundDown(cursor, alignOf(layout, entryOf(layout.rows, at)));
}
