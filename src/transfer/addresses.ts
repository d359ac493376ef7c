import { entryOf } from "../columns.js";

/** The addresses `[begin, end)` around all pieces that have bytes; undefined where none has. */
export function addressBounds(address: BigUint64Array, length: Float64Array): { readonly begin: bigint; readonly end: bigint } | undefined {
  let bounds: { begin: bigint; end: bigint } | undefined;
  for (const [row, bytes] of length.entries()) {
    if (bytes === 0) continue;
    const begin = entryOf(address, row);
    const end = begin + BigInt(bytes);
    bounds ??= { begin, end };
    if (begin < bounds.begin) bounds.begin = begin;
    if (end > bounds.end) bounds.end = end;
  }
  return bounds;
}

/** Bases below this plus any offset into memory are exact as numbers. */
const exactBases = 2n ** 52n;

/**
 * Addresses `base + offset` as a column. Written as halves of 32 bits: making a bigint of each
 * costs ten times as much.
 */
export function addressColumn(base: bigint, offsets: Float64Array): BigUint64Array {
  const column = new BigUint64Array(offsets.length);
  if (base >= exactBases) {
    offsets.forEach((offset, row) => {
      column[row] = base + BigInt(offset);
    });
    return column;
  }
  const halves = new Uint32Array(column.buffer);
  const start = Number(base);
  for (let row = 0; row < offsets.length; row++) {
    const address = start + entryOf(offsets, row);
    halves[2 * row] = address % 2 ** 32;
    halves[2 * row + 1] = address / 2 ** 32;
  }
  return column;
}
