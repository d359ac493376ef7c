import { lstat } from "node:fs/promises";
import { join } from "node:path";
import { CheckpointError } from "../errors.js";
import type { NativeIndex } from "../native/addon.js";
import { awaitNative } from "../native/failure.js";
import { addon } from "../native/load.js";
import { isIndexName, type WeightChoice } from "./families.js";
import { isForeignWeights } from "./foreign-weights.js";
import { shardPath } from "./shard-path.js";

/** What is left of the tiers of a folder's choices. */
export interface ChosenWeights {
  readonly candidates: readonly WeightChoice[];
  /** The indexes that were read on the way, by name. */
  readonly indexes: ReadonlyMap<string, NativeIndex>;
}

export interface Asked {
  /** The option, if it is given. */
  readonly weights: string | undefined;
  /** Names of files that are still being downloaded: they count where nothing whole does. */
  readonly parts: ReadonlyMap<string, unknown>;
}

/**
 * The first tier of which anything is left once the indexes are taken out that have nothing to do
 * with the weights in the folder: a `vocab.index.json` is no index of safetensors, and one whose
 * files are not here says nothing of those that are. Where only indexes are there, they stand for
 * the folder after all, and tell what is wrong with them; but a file counts as an index only by its
 * full name or by what it holds. One that `weights` names is taken as it is.
 */
export async function chosenWeights(
  folder: string,
  tiers: readonly (readonly WeightChoice[])[],
  { weights, parts }: Asked,
): Promise<ChosenWeights> {
  const indexes = new Map<string, NativeIndex>();
  const isPart = (choice: WeightChoice) => choice.files.every((file) => parts.has(file));
  const isWeights = ({ kind }: WeightChoice) => kind !== "index";
  for (const [at, tier] of tiers.entries()) {
    const others = tiers
      .slice(at + 1)
      .flat()
      .filter(isWeights);
    const kept: WeightChoice[] = [];
    for (const choice of tier) {
      // What would be taken anyway need not be read before its turn.
      const only = tier.length === 1 && others.length === 0 && isIndexName(choice.name);
      const taken = only || choice.name === weights || isWeights(choice);
      if (taken || (await concerns(folder, choice, others, indexes))) kept.push(choice);
    }
    const whole = kept.filter((choice) => !isPart(choice));
    if (kept.length > 0) return { candidates: whole.length > 0 ? whole : kept, indexes };
  }
  const [first = []] = tiers.filter((tier) => tier.length > 0);
  return { candidates: first.filter(({ name }) => isIndexName(name) || indexes.has(name)), indexes };
}

/**
 * Whether an index tells of weights in the folder. One that cannot be read does if its name says
 * so.
 */
async function concerns(folder: string, { name, stem }: WeightChoice, others: readonly WeightChoice[], indexes: Map<string, NativeIndex>) {
  const indexFile = join(folder, name);
  try {
    const index = await awaitNative(() => addon().readIndex(indexFile));
    indexes.set(name, index);
    for (const file of index.files) if (!isForeignWeights(file) && (await isThere(folder, file, indexFile))) return true;
    return false;
  } catch (error) {
    if (!(error instanceof CheckpointError)) throw error;
    return isIndexName(name) && others.some((other) => other.stem === stem);
  }
}

/** A link that leads nowhere is there: its target is what a download has not brought yet. */
async function isThere(folder: string, shard: string, indexFile: string): Promise<boolean> {
  try {
    await lstat(shardPath(folder, shard, indexFile));
    return true;
  } catch {
    return false;
  }
}
