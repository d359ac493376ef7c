/** Bases below this plus any offset into memory are exact as numbers. */
const exactBases = 2n ** 52n;

/**
 * Addresses `base + offset` as a column. Written as halves of 32 bits: making a bigint of each costs ten times as much.
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
    const address = start + (offsets[row] ?? 0);
    halves[2 * row] = address % 2 ** 32;
    halves[2 * row + 1] = address / 2 ** 32;
  }
  return column;
}
