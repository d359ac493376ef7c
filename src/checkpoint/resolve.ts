import type { Dirent } from "node:fs";
import { access, constants, readdir, readlink } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { errorOf } from "../errors.js";
import type { NativeIndex } from "../native/addon.js";
import { absolutePath } from "./absolute-path.js";
import { defaultTiers, pickedTiers, type WeightChoice, weightChoices } from "./families.js";
import { chosenWeights } from "./folder-indexes.js";
import { isForeignWeights } from "./foreign-weights.js";
import { fsError } from "./fs-errors.js";
import { cachedSnapshot, isRepositoryFolder, notCached, parseRepositoryId, snapshotOf } from "./hub-cache.js";
import { certainLeftover, type Leftover } from "./leftovers.js";
import { unfinished } from "./unfinished.js";

/** What a path stands for: shard files, or an index that names them. */
export interface Resolved {
  readonly path: string;
  readonly kind: "file" | "index" | "folder";
  /** Folder that the shards' names are relative to. */
  readonly folder: string;
  readonly indexFile: string | undefined;
  /** What `indexFile` holds, where it was read already. */
  readonly index?: NativeIndex | undefined;
  /** Names of the shards; empty when an index names them. */
  readonly shards: readonly string[];
  /**
   * Weight files that the index was preferred to without being asked for by name: it must name them
   * all, else the choice is ambiguous.
   */
  readonly rivals: readonly string[];
}

/**
 * Finds the files of a checkpoint: a file, an index (`.json`), a folder, or a repository in the
 * Hub's local cache.
 * @throws ERR_OPTION_INVALID, ERR_OPTION_CONFLICT, ERR_CHECKPOINT_URL_UNSUPPORTED,
 *   ERR_CHECKPOINT_NOT_FOUND, ERR_CHECKPOINT_PERMISSION, ERR_CHECKPOINT_IO,
 *   ERR_CHECKPOINT_AMBIGUOUS, ERR_CHECKPOINT_SHARD_MISSING, ERR_CHECKPOINT_DOWNLOAD_UNFINISHED
 */
export async function resolveCheckpoint(given: string | URL, weights: string | undefined): Promise<Resolved> {
  const { path, entries } = await placeOf(given);
  if (entries !== undefined) return resolveFolder(path, entries, weights);
  if (weights !== undefined) {
    throw errorOf("ERR_OPTION_CONFLICT", `weights ${JSON.stringify(weights)} picks among the files of a folder, but ${path} is a file`, {
      facts: { option: "weights", file: path },
    });
  }
  const leftover = certainLeftover(basename(path));
  if (leftover !== undefined)
    throw unfinished(path, { ...leftover, path, remedy: `${leftover.remedy}, or rename this file if it is complete` });
  const folder = dirname(path);
  if (path.endsWith(".json")) return { path, kind: "index", folder, indexFile: path, shards: [], rivals: [] };
  return { path, kind: "file", folder, indexFile: undefined, shards: [basename(path)], rivals: [] };
}

/**
 * The file or folder that a path stands for, or a repository in the Hub's local cache, whether it
 * holds weights or not. It is there, and this user may read it.
 * @throws ERR_OPTION_INVALID, ERR_CHECKPOINT_URL_UNSUPPORTED, ERR_CHECKPOINT_NOT_FOUND,
 *   ERR_CHECKPOINT_PERMISSION, ERR_CHECKPOINT_IO, ERR_CHECKPOINT_AMBIGUOUS
 */
export async function readablePlace(given: string | URL): Promise<string> {
  const { path, entries } = await placeOf(given);
  if (entries !== undefined) return path;
  try {
    await access(path, constants.R_OK);
  } catch (cause) {
    throw fsError(path, "read", cause);
  }
  return path;
}

/**
 * A file, or a folder with what is in it: that of the local path, else the snapshot of the
 * repository of that name in the Hub's cache.
 */
async function placeOf(given: string | URL): Promise<{ readonly path: string; readonly entries: Dirent[] | undefined }> {
  const path = localPath(given);
  const local = await entriesOf(path);
  if (!(local instanceof Error)) return inRepository(path, local);
  const id = typeof given === "string" && local.code === "ENOENT" ? parseRepositoryId(given) : undefined;
  const snapshot = id === undefined ? undefined : await cachedSnapshot(id);
  if (snapshot === undefined) {
    if (id?.repository.includes("/")) throw notCached(id, path);
    throw fsError(path, "readdir", local, await linkHint(path));
  }
  return requireEntries(snapshot);
}

/** What a folder holds, in one question with whether it is one; undefined for a file. */
async function entriesOf(path: string): Promise<Dirent[] | NodeJS.ErrnoException | undefined> {
  try {
    return await readdir(path, { withFileTypes: true });
  } catch (cause) {
    const error = cause as NodeJS.ErrnoException;
    return error.code === "ENOTDIR" ? undefined : error;
  }
}

/** A repository's folder in the Hub's cache stands for its snapshot. */
async function inRepository(path: string, entries: Dirent[] | undefined) {
  const folders = entries?.filter((entry) => entry.isDirectory()).map(({ name }) => name) ?? [];
  return isRepositoryFolder(path, folders) ? requireEntries(await snapshotOf(path, undefined)) : { path, entries };
}

async function requireEntries(path: string) {
  const entries = await entriesOf(path);
  if (entries instanceof Error) throw fsError(path, "readdir", entries);
  return { path, entries };
}

/** Whether something is a URL, of this realm or another. */
function isUrl(given: unknown): given is URL {
  if (given instanceof URL) return true;
  if (typeof given !== "object" || given === null) return false;
  const { href, protocol } = given as Partial<URL>;
  return typeof href === "string" && typeof protocol === "string";
}

/** Absolute path of what the caller gave. */
function localPath(given: string | URL): string {
  const text = isUrl(given) ? given.href : given;
  if (typeof text !== "string" || text === "" || text.includes("\0")) {
    throw errorOf("ERR_OPTION_INVALID", "a checkpoint's path is a string that is not empty and has no NUL, or a file: URL", {
      facts: { option: "path" },
    });
  }
  const scheme = isUrl(given) ? given.protocol : /^(?:[a-z][a-z0-9+.-]*:(?=\/\/)|file:(?=\/))/i.exec(text)?.[0];
  if (scheme === undefined) return absolutePath(text);
  if (scheme.toLowerCase() !== "file:") {
    throw errorOf("ERR_CHECKPOINT_URL_UNSUPPORTED", `${text}: only file: URLs and paths can be opened, not ${scheme}; download it first`, {
      facts: { url: text, scheme },
    });
  }
  try {
    return resolve(fileURLToPath(text));
  } catch (cause) {
    throw errorOf("ERR_CHECKPOINT_URL_UNSUPPORTED", `${text}: this file: URL names no local path (${(cause as Error).message})`, {
      facts: { url: text, scheme },
      cause,
    });
  }
}

async function linkHint(path: string): Promise<string> {
  const target = await readlink(path).catch(() => undefined);
  return target === undefined ? "" : `; this symbolic link leads to ${target}`;
}

async function resolveFolder(path: string, entries: readonly Dirent[], weights: string | undefined): Promise<Resolved> {
  if (weights !== undefined && (typeof weights !== "string" || weights === "" || weights.includes("/"))) {
    throw errorOf("ERR_OPTION_INVALID", `weights ${JSON.stringify(weights)}: a file name or stem within the folder is wanted`, {
      facts: { option: "weights" },
    });
  }
  const { names, folders } = listed(entries);
  const parts = unfinishedParts(entries);
  const choices = weightChoices([...names, ...parts.keys()]);
  const tiers = weights === undefined ? defaultTiers(choices) : pickedTiers(choices, weights);
  const { candidates, indexes } = await chosenWeights(path, tiers, { weights, parts });
  const [choice, other] = candidates;
  if (choice === undefined) throw weights === undefined ? nothingThere(path, names, folders) : nothingPicked(path, weights, choices);
  if (other !== undefined) throw ambiguous(path, choiceNames(candidates));
  const part = choice.files.map((file) => parts.get(file)).find((found) => found !== undefined);
  if (part !== undefined) {
    const others = choices.filter((whole) => whole !== choice && !whole.files.some((file) => parts.has(file)));
    const pick = others.length > 0 ? `; or pick other weights with the option weights: ${list(choiceNames(others))}` : "";
    throw unfinished(join(path, part.target), { ...part, path: join(path, part.name), remedy: `${part.remedy}${pick}` });
  }
  if (choice.kind === "index") {
    const indexFile = join(path, choice.name);
    const preferred = weights === undefined && choice.name !== "model.safetensors.index.json";
    const others = choices.filter((rival) => preferred && rival.kind !== "index" && rival.stem !== choice.stem);
    const index = indexes.get(choice.name);
    return { path, kind: "folder", folder: path, indexFile, index, shards: [], rivals: others.flatMap((rival) => rival.files) };
  }
  if (choice.missing.length > 0) throw incomplete(path, choice);
  if (choice.files.length !== choice.total) throw ambiguous(path, choice.files);
  return { path, kind: "folder", folder: path, indexFile: undefined, shards: choice.files, rivals: [] };
}

/**
 * Left-overs in a folder of files that are not there yet, by the files' names: a browser may keep a
 * folder for one.
 */
function unfinishedParts(entries: readonly Dirent[]): Map<string, Leftover> {
  const there = new Set(entries.map(({ name }) => name));
  const found = entries.flatMap(({ name }) => certainLeftover(name) ?? []);
  return new Map(found.filter(({ target }) => !there.has(target)).map((leftover) => [leftover.target, leftover]));
}

/**
 * Names in a folder. A sub-folder that takes the name of a standard file counts as one, which is
 * then an error when it is opened.
 */
function listed(entries: readonly Dirent[]): { readonly names: string[]; readonly folders: string[] } {
  const below = (entry: Dirent) => entry.isDirectory() && !/^model\.safetensors(\.index\.json)?$/.test(entry.name);
  const folders = entries.filter(below);
  return { names: entries.filter((entry) => !below(entry)).map(({ name }) => name), folders: folders.map(({ name }) => name) };
}

function nothingThere(path: string, names: readonly string[], folders: readonly string[]) {
  const other = names.filter((name) => isForeignWeights(name) || name.endsWith(".index.json"));
  const found = other.length > 0 ? `; files of other formats are there: ${list(other)}` : "";
  const below = folders.length > 0 ? `; folders below are not searched: ${list(folders)}` : "";
  return errorOf(
    "ERR_CHECKPOINT_NOT_FOUND",
    `${path}: the folder holds no safetensors weights: looked for model.safetensors.index.json, model.safetensors, *.index.json, *.safetensors${found}${below}`,
    { facts: { file: path } },
  );
}

function nothingPicked(path: string, weights: string, choices: readonly WeightChoice[]) {
  const names = choiceNames(choices);
  const there = names.length > 0 ? `there are ${list(names)}` : "it holds no safetensors weights";
  return errorOf("ERR_CHECKPOINT_NOT_FOUND", `${path}: weights ${JSON.stringify(weights)} picks nothing in this folder: ${there}`, {
    facts: { file: path, option: "weights", choices: names },
  });
}

function choiceNames(choices: readonly WeightChoice[]): string[] {
  return choices.map((choice) => choice.name);
}

/** The error for several weights of which `names` pick one each. */
export function ambiguous(path: string, names: readonly string[]) {
  return errorOf(
    "ERR_CHECKPOINT_AMBIGUOUS",
    `${path}: several weights are side by side, and loading them together would mix them: ${list(names)}; pick one with the option weights`,
    { facts: { file: path, option: "weights", choices: names } },
  );
}

function incomplete(path: string, choice: WeightChoice) {
  const { missing, total } = choice;
  const file = join(path, missing[0] ?? "");
  return errorOf(
    "ERR_CHECKPOINT_SHARD_MISSING",
    `${file}: no such file; ${missing.length} of the ${total} shards of ${choice.name} are missing`,
    {
      facts: { file, missing: missing.length, shards: total },
    },
  );
}

function list(names: readonly string[]): string {
  const shown = names.slice(0, 12);
  return names.length > shown.length ? `${shown.join(", ")} and ${names.length - shown.length} more` : shown.join(", ");
}
