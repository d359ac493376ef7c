import { readdir } from "node:fs/promises";
import { basename, join } from "node:path";
import type { Checkpoint } from "../checkpoint/checkpoint.js";
import { isForeignWeights } from "../checkpoint/foreign-weights.js";
import { leftoverOf } from "../checkpoint/leftovers.js";

/** What lies in a checkpoint's folder like weights, and is none of the checkpoint's. */
export interface LeftAside {
  /** Path within the folder. */
  readonly name: string;
  /** Why it does not count, for people. */
  readonly why: string;
}

/**
 * What opening a folder left aside: other weights and indexes, unfinished downloads, weights of
 * other formats, and weights in folders right below. Nothing for a file or an index, which were
 * named themselves.
 */
export async function leftAside({ kind, path, indexFile, shards }: Checkpoint): Promise<LeftAside[]> {
  if (kind !== "folder") return [];
  const own = new Set([...shards.map(({ name }) => name), ...(indexFile === undefined ? [] : [basename(indexFile)])]);
  const aside: LeftAside[] = [];
  const entries = await readdir(path, { withFileTypes: true }).catch(() => []);
  for (const { name } of entries) {
    const why = own.has(name) ? undefined : reason(name, own);
    if (why !== undefined) aside.push({ name, why });
  }
  for (const folder of entries.filter((entry) => entry.isDirectory())) {
    const below = await readdir(join(path, folder.name)).catch(() => []);
    const weights = below.filter((name) => isWeights(name) && !own.has(`${folder.name}/${name}`));
    if (weights.length > 0)
      aside.push({ name: `${folder.name}/`, why: `${weights.length} file(s) of weights: folders below do not count` });
  }
  return aside.sort((a, b) => (a.name < b.name ? -1 : 1));
}

function isWeights(name: string): boolean {
  return name.endsWith(".safetensors");
}

function reason(name: string, own: ReadonlySet<string>): string | undefined {
  const leftover = leftoverOf(name);
  if (leftover !== undefined && isWeights(leftover.target)) return `unfinished: left by ${leftover.tool}`;
  if (isWeights(name)) return name.startsWith(".") ? "hidden" : "other weights: see --weights";
  if (name.endsWith(".safetensors.index.json")) return `an index that is not needed for ${own.size === 1 ? "this file" : "these files"}`;
  return isForeignWeights(name) ? "another format" : undefined;
}
