/**
 * Entry of a column. @throws RangeError where there is none: an address or a length that is missing
 * must never count as 0
 */
export function entryOf<T>(column: ArrayLike<T>, row: number): T {
  const entry = column[row];
  if (entry === undefined) throw new RangeError(`a column of ${column.length} entries has none at ${row}`);
  return entry;
}
