import { stat } from "node:fs/promises";
import { basename, dirname, join, relative } from "node:path";
import { isWeightName } from "../checkpoint/families.js";
import { listedFile } from "./digest-lists.js";
import { type KnownDigest, type ReadLists, resolvedPath } from "./known-digests.js";

/** Weights, or an index, that a list of digests names and that are not there. */
export interface MissingFile {
  /** Path within the folder. */
  readonly name: string;
  readonly file: string;
  readonly expected: readonly KnownDigest[];
}

/**
 * What the lists in `folder` and below name and nobody can read, in the order of names. A listed
 * path counts as there under its own name, or beside its list: lists are often made elsewhere.
 * Files that are no weights are not this command's.
 */
export async function missingFiles(folder: string, lists: ReadLists): Promise<MissingFile[]> {
  const missing = new Map<string, KnownDigest[]>();
  for (const [list, reading] of lists) {
    const place = dirname(list);
    if (!isWithin(place, folder)) continue;
    for (const { algorithm, digest, path = listedFile(basename(list)) } of (await reading).digests) {
      if (path === undefined) continue;
      const named = resolvedPath(place, path);
      const beside = join(place, basename(named));
      if (!isWeightName(basename(named)) || (await isThere([join(place, path), named, beside]))) continue;
      const file = isWithin(named, folder) ? named : beside;
      missing.set(file, [...(missing.get(file) ?? []), { algorithm, digest, source: basename(list) }]);
    }
  }
  const found = [...missing].map(([file, expected]) => ({ name: relative(folder, file), file, expected }));
  return found.sort((a, b) => (a.name < b.name ? -1 : 1));
}

function isWithin(path: string, folder: string): boolean {
  return path === folder || path.startsWith(folder.endsWith("/") ? folder : `${folder}/`);
}

async function isThere(paths: readonly string[]): Promise<boolean> {
  for (const path of new Set(paths)) {
    const there = await stat(path).then(
      () => true,
      () => false,
    );
    if (there) return true;
  }
  return false;
}
