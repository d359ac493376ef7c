import { entryOf } from "../columns.js";

/** Up to three names that somebody may have meant by `wanted`, nearest first. */
export function nearNames(wanted: string, names: Iterable<string>): string[] {
  const limit = Math.max(2, Math.floor(wanted.length / 4));
  const found: { name: string; distance: number }[] = [];
  for (const name of names) {
    // Both contained in the other: a forgotten prefix (`model.`) or suffix (`.weight`) costs
    // little, however long it is.
    const distance = contains(name, wanted) ? 1 : editDistance(wanted, name, limit);
    if (distance <= limit) {
      found.push({ name, distance });
      if (found.length > 256) keepNearest(found);
    }
  }
  return keepNearest(found).map(({ name }) => name);
}

function keepNearest(found: { name: string; distance: number }[]): { name: string; distance: number }[] {
  found.sort((a, b) => a.distance - b.distance || a.name.length - b.name.length);
  found.length = Math.min(found.length, 3);
  return found;
}

function contains(name: string, part: string): boolean {
  return part.length >= 4 && (name.endsWith(part) || name.startsWith(part));
}

/**
 * Levenshtein's distance in UTF-16 units, or anything above `limit` once it is known to exceed
 * that.
 */
function editDistance(a: string, b: string, limit: number): number {
  if (Math.abs(a.length - b.length) > limit) return limit + 1;
  let begin = 0;
  let aEnd = a.length;
  let bEnd = b.length;
  // Names of one checkpoint share most of their characters: only what differs in the middle is
  // compared in full.
  while (begin < aEnd && begin < bEnd && a.charCodeAt(begin) === b.charCodeAt(begin)) begin++;
  while (aEnd > begin && bEnd > begin && a.charCodeAt(aEnd - 1) === b.charCodeAt(bEnd - 1)) {
    aEnd--;
    bEnd--;
  }
  const width = bEnd - begin;
  let above = Array.from({ length: width + 1 }, (_, column) => column);
  for (let row = 1; row <= aEnd - begin; row++) {
    const current = [row];
    let smallest = row;
    for (let column = 1; column <= width; column++) {
      const same = a.charCodeAt(begin + row - 1) === b.charCodeAt(begin + column - 1);
      const value = Math.min(entryOf(above, column - 1) + (same ? 0 : 1), entryOf(above, column) + 1, entryOf(current, column - 1) + 1);
      current.push(value);
      smallest = Math.min(smallest, value);
    }
    if (smallest > limit) return limit + 1;
    above = current;
  }
  return entryOf(above, width);
}
