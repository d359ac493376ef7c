import { lstat, readdir, readFile, realpath, stat } from "node:fs/promises";
import { homedir } from "node:os";
import { basename, join, resolve } from "node:path";
import { readEnv } from "../envs.js";
import { errorOf } from "../errors.js";
import { fsError } from "./fs-errors.js";

/**
 * A repository of the Hugging Face Hub: `org/name`, `org/name@revision`, or `name` alone for the
 * few that have no owner.
 */
export interface RepositoryId {
  readonly repository: string;
  readonly revision: string | undefined;
}

const repositoryFolder = /^(models|datasets|spaces)--(?=.)/;

/** The repository that a text names by its form; undefined for what can only be a path. */
export function parseRepositoryId(text: string): RepositoryId | undefined {
  const [, repository, revision] = /^([A-Za-z0-9][\w.-]*(?:\/[A-Za-z0-9_][\w.-]*)?)(?:@(.+))?$/.exec(text) ?? [];
  return repository === undefined ? undefined : { repository, revision };
}

/** Where the Hub's tools keep what they download, by their own variables. */
export function hubCacheFolder(environment: NodeJS.ProcessEnv = process.env): string {
  const home = readEnv("HF_HOME", environment) ?? join(readEnv("XDG_CACHE_HOME", environment) ?? "~/.cache", "huggingface");
  const folder = readEnv("HF_HUB_CACHE", environment) ?? readEnv("HUGGINGFACE_HUB_CACHE", environment) ?? join(home, "hub");
  // As Python's expanduser and expandvars do: a variable that is not set stays as it is.
  const expanded = folder.replace(/^~(?=\/|$)/, environment.HOME || homedir());
  return resolve(expanded.replace(/\$(?:(\w+)|\{(\w+)\})/g, (whole, bare, braced) => environment[bare ?? braced] ?? whole));
}

/**
 * The snapshot of a repository in the local cache. Undefined where the cache does not have the
 * repository.
 * @throws as {@link snapshotOf}
 */
export async function cachedSnapshot({ repository, revision }: RepositoryId): Promise<string | undefined> {
  const folder = join(hubCacheFolder(), `models--${repository.replace("/", "--")}`);
  return (await isFolder(folder)) ? snapshotOf(folder, revision) : undefined;
}

/** The error for a repository that is neither a local path nor in the cache. */
export function notCached({ repository, revision }: RepositoryId, path: string) {
  const cache = hubCacheFolder();
  return errorOf(
    "ERR_CHECKPOINT_NOT_FOUND",
    `${path}: no such file or folder, nor is ${repository} in the Hub's cache ${cache} (set by HF_HUB_CACHE or HF_HOME): ${download(repository, revision)}`,
    { facts: { file: path, repository, revision, cache } },
  );
}

/**
 * Whether a folder is a repository's in the Hub's cache, by what lies in it; one of another name is
 * a link to it.
 */
export function isRepositoryFolder(path: string, folders: readonly string[]): boolean {
  const parts = ["snapshots", "refs", "blobs"].filter((name) => folders.includes(name)).length;
  return parts > 1 || (parts === 1 && repositoryFolder.test(basename(path)));
}

/**
 * The snapshot of a repository's folder in the Hub's cache that belongs to a revision: a branch or
 * tag by `refs`, or a commit, which may be cut short. Without one it is that of `main`, or the only
 * one.
 * @throws ERR_CHECKPOINT_NOT_FOUND, ERR_CHECKPOINT_AMBIGUOUS, ERR_CHECKPOINT_PERMISSION,
 *   ERR_CHECKPOINT_IO
 */
export async function snapshotOf(folder: string, revision: string | undefined): Promise<string> {
  const snapshots = await namesIn(join(folder, "snapshots"));
  const repository = basename(await realpath(folder))
    .replace(repositoryFolder, "")
    .replace("--", "/");
  const facts = { file: join(folder, "snapshots"), repository, revision };
  const commit = await commitOf(folder, revision ?? "main");
  if (commit !== undefined) {
    if (snapshots.includes(commit)) return join(folder, "snapshots", commit);
    const message = `${folder}: ${revision ?? "main"} is commit ${commit}, of which nothing is in the cache; ${there(snapshots)}; ${download(repository, revision)}`;
    throw errorOf("ERR_CHECKPOINT_NOT_FOUND", message, { facts });
  }
  const [found, other] = revision === undefined ? snapshots : snapshots.filter((name) => isCommit(name, revision));
  if (found === undefined) {
    const what = revision === undefined ? "no snapshot" : `no revision ${JSON.stringify(revision)}`;
    const message = `${folder}: this repository has ${what} in the cache; ${there(snapshots)}; ${download(repository, revision)}`;
    throw errorOf("ERR_CHECKPOINT_NOT_FOUND", message, { facts });
  }
  if (other === undefined) return join(folder, "snapshots", found);
  const message = `${folder}: several snapshots can be meant, and none is named by refs/main; ${there(snapshots)}; name one as ${repository}@REVISION, or by its path`;
  throw errorOf("ERR_CHECKPOINT_AMBIGUOUS", message, { facts: { ...facts, choices: snapshots } });
}

/**
 * The commit that a branch or tag stood at when it was downloaded; undefined where there is no such
 * reference. The Hub's own tools take no other snapshot in place of one whose reference is damaged,
 * and neither is one taken here.
 */
async function commitOf(folder: string, reference: string): Promise<string | undefined> {
  // Nothing above the folder is looked at, whatever the name.
  if (reference.split("/").some((part) => part === "" || part === "." || part === "..")) return undefined;
  const file = join(folder, "refs", reference);
  let text: string;
  try {
    text = await readFile(file, "utf8");
  } catch (cause) {
    const errno = (cause as NodeJS.ErrnoException).code ?? "";
    // Of `refs/pr` and the like, which hold references, none is meant.
    const isPart = errno === "EISDIR" && reference !== "main";
    if (errno === "ENAMETOOLONG" || isPart || (errno === "ENOENT" && !(await isLink(file)))) return undefined;
    if (errno === "ENOTDIR" && (await isFolder(join(folder, "refs")))) return undefined;
    throw fsError(file, "read", cause, `, so that the commit of ${reference} is not known; ${instead(folder)}`);
  }
  const commit = text.trim();
  if (/^\w+$/.test(commit)) return commit;
  const found = commit === "" ? "is empty" : `holds ${JSON.stringify(commit.slice(0, 60))}`;
  const message = `${file}: this file should hold the commit of ${reference}, and it ${found}; ${instead(folder)}`;
  throw errorOf("ERR_CHECKPOINT_NOT_FOUND", message, { facts: { file } });
}

function instead(folder: string): string {
  return `download the repository again, or give the path of a snapshot below ${join(folder, "snapshots")}`;
}

async function isLink(path: string): Promise<boolean> {
  const found = await lstat(path).catch(() => undefined);
  return found?.isSymbolicLink() === true;
}

/** Whether a revision is a snapshot's commit, or its beginning as people write it. */
function isCommit(snapshot: string, revision: string): boolean {
  return snapshot === revision || (/^[0-9a-f]{7,40}$/i.test(revision) && snapshot.startsWith(revision.toLowerCase()));
}

async function namesIn(folder: string): Promise<string[]> {
  try {
    return (await readdir(folder)).sort();
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === "ENOENT") return [];
    throw fsError(folder, "readdir", cause);
  }
}

async function isFolder(path: string): Promise<boolean> {
  const found = await stat(path).catch(() => undefined);
  return found?.isDirectory() === true;
}

function there(snapshots: readonly string[]): string {
  return snapshots.length === 0 ? "there are none" : `there are snapshots of ${snapshots.slice(0, 6).join(", ")}`;
}

function download(repository: string, revision: string | undefined): string {
  return `download it with \`hf download ${repository}${revision === undefined ? "" : ` --revision ${revision}`}\``;
}
