/**
 * Entry of a column. @throws RangeError where there is none: an address or a length that is missing
 * must never count as 0
 */
export function entryOf<T>(column: ArrayLike<T>, row: number): T {
  const entry = column[row];
  if (entry === undefined) throw new RangeError(`a column of ${column.length} entries has none at ${row}`);
  return entry;
}

/** The same of a map whose keys are known. */
export function valueIn<Key, T>(map: ReadonlyMap<Key, T>, key: Key): T {
  const value = map.get(key);
  if (value === undefined) throw new RangeError(`a map of ${map.size} entries has none for ${String(key)}`);
  return value;
}
