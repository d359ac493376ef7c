import { readdir, readlink, realpath, stat } from "node:fs/promises";
import { basename, dirname, join, relative } from "node:path";
import type { ErrorCode } from "../error-codes.js";
import { isWeightName } from "./families.js";
import { leftoverOf } from "./leftovers.js";

/** Something on disk that tells of an unfinished download. */
export interface Trace {
  readonly path: string;
  /** Who leaves it. */
  readonly tool: string;
  /** What to do, as the end of "to finish it, ...". */
  readonly remedy: string;
}

/**
 * Folders above the file in which a downloader's own folder is looked for: shards may lie some
 * levels below what was downloaded.
 */
const maxLevels = 4;

const missing: ReadonlySet<ErrorCode> = new Set(["ERR_CHECKPOINT_NOT_FOUND", "ERR_CHECKPOINT_SHARD_MISSING"]);

/**
 * The trace that an unfinished download left of a file, or of a folder's weights. Only one of the
 * very file explains why it is too short; why it is missing is explained by one of any weights
 * beside it, too: downloads go one by one.
 */
export async function traceOf(file: string, code: ErrorCode): Promise<Trace | undefined> {
  const isFolder = await stat(file).then(
    (found) => found.isDirectory(),
    () => false,
  );
  const folder = isFolder ? file : dirname(file);
  const name = isFolder ? undefined : basename(file);
  const beside = await besideWeights(folder, name, missing.has(code));
  if (beside !== undefined || !missing.has(code)) return beside;
  return (await annexed(file)) ?? (await inHubCache(folder)) ?? (await inOwnFolder(folder, name));
}

async function besideWeights(folder: string, name: string | undefined, anyWeights: boolean): Promise<Trace | undefined> {
  const names = await namesIn(folder);
  const there = new Set(names);
  const found = names.flatMap((entry) => leftoverOf(entry) ?? []);
  const ofWeights = found.filter(({ target }) => isWeightName(target) && !there.has(target));
  const leftover = found.find(({ target }) => target === name) ?? (anyWeights ? ofWeights[0] : undefined);
  return leftover === undefined ? undefined : { ...leftover, path: join(folder, leftover.name) };
}

/** What git-annex has not fetched is a link into its objects. */
async function annexed(file: string): Promise<Trace | undefined> {
  const target = await readlink(file).catch(() => "");
  const path = file;
  return target.includes("/annex/objects/") ? { path, tool: "git-annex", remedy: "run `git annex get` on it" } : undefined;
}

/**
 * The Hub's cache keeps unfinished files among the blobs; a snapshot has links to those that are
 * whole.
 */
async function inHubCache(folder: string): Promise<Trace | undefined> {
  const [, root, repository] = /^(.*\/(?:models|datasets|spaces)--([^/]+))\/snapshots(?:\/|$)/s.exec(await real(folder)) ?? [];
  if (root === undefined || repository === undefined) return undefined;
  const blobs = join(root, "blobs");
  const name = (await namesIn(blobs)).find((entry) => entry.endsWith(".incomplete"));
  const remedy = `run \`hf download ${repository.replace("--", "/")}\` again`;
  return name === undefined ? undefined : { path: join(blobs, name), tool: "huggingface_hub", remedy };
}

/**
 * Folders that downloaders make for their own use: where `--local-dir` points to, in ModelScope's
 * downloads, under rsync's --partial-dir.
 */
async function inOwnFolder(folder: string, name: string | undefined): Promise<Trace | undefined> {
  const wanted = (path: string) => (name === undefined ? isWeightName(basename(path)) : basename(path) === name);
  const partial = join(folder, ".rsync-partial");
  const rsync = (await namesIn(partial)).find(wanted);
  if (rsync !== undefined)
    return { path: join(partial, rsync), tool: "rsync", remedy: "run rsync again with --partial-dir=.rsync-partial" };
  const hash = await hashOf(name ?? "");
  for (let level = 0, base = folder; level < maxLevels && base !== dirname(base); level++, base = dirname(base)) {
    const hub = join(base, ".cache/huggingface/download");
    const incomplete = (await namesBelow(hub)).filter((path) => path.endsWith(".incomplete"));
    const own = incomplete.find((path) => name !== undefined && isIncomplete(path, relative(base, join(folder, name)), hash));
    const first = own ?? incomplete[0];
    if (first !== undefined) return { path: join(hub, first), tool: "huggingface_hub", remedy: "run `hf download` again" };
    const scope = join(base, "._____temp");
    const temporary = (await namesBelow(scope)).find(wanted);
    if (temporary !== undefined) return { path: join(scope, temporary), tool: "ModelScope", remedy: "run `modelscope download` again" };
  }
  return undefined;
}

/** What huggingface_hub makes of a file's name for the names of its own files. */
async function hashOf(name: string): Promise<string> {
  const { createHash } = await import("node:crypto");
  return createHash("sha1").update(`${name}.metadata`).digest("base64").replaceAll("+", "-").replaceAll("/", "_");
}

/** huggingface_hub names an unfinished file by the file's name or by a hash of it. */
function isIncomplete(path: string, file: string, hash: string): boolean {
  const name = basename(path);
  return dirname(path) === dirname(file) && (name.startsWith(`${hash}.`) || name.startsWith(`${basename(file)}.`));
}

async function real(path: string): Promise<string> {
  return await realpath(path).catch(() => path);
}

async function namesIn(folder: string): Promise<string[]> {
  return (await readdir(folder).catch(() => [])).sort();
}

async function namesBelow(folder: string): Promise<string[]> {
  return (await readdir(folder, { recursive: true }).catch(() => [])).sort();
}
