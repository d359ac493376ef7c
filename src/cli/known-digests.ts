import { lstat, readdir, readFile, readlink, realpath, stat } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { type DigestAlgorithm, isDigestList, type ListedDigest, listedFile, listText, parseDigests } from "./digest-lists.js";

/** A digest that somebody published for a file. */
export interface KnownDigest {
  /** `git-blob` is the SHA-1 of a Git object, under which the Hub's cache stores small files. */
  readonly algorithm: DigestAlgorithm | "git-blob";
  /** Lower-case hex digits. */
  readonly digest: string;
  /** `Hub cache`, or the name of the list. */
  readonly source: string;
}

export interface Known {
  readonly digests: readonly KnownDigest[];
  /** Why there is none, for people. */
  readonly reason: string;
}

/** Links that are followed one by one; the kernel follows no more. */
const maxLinks = 40;
/** A longer list is no list. */
const maxListBytes = 64 * 2 ** 20;

/** Lists that were read, by path: those of a folder serve all shards in it. */
export type ReadLists = Map<string, Promise<ReadList>>;

interface ReadList {
  readonly text: string;
  readonly digests: readonly ListedDigest[];
  /** Why it says nothing at all. */
  readonly reason: string | undefined;
}

/**
 * Digests known for a file: that of a blob's name in the Hub's cache, and those of the lists beside
 * it. Both are looked for at the file and at every link on the way to it; lists are also looked for
 * in `folder` and between, where they may name files below. A list that cannot be read is a reason
 * like any other.
 */
export async function knownDigests(file: string, folder = dirname(file), lists: ReadLists = new Map()): Promise<Known> {
  const paths = await linkChain(resolve(file));
  const digests = paths.flatMap(blobDigest);
  const reasons: string[] = [];
  const seen = new Set<string>();
  for (const path of paths) {
    for (const place of path === paths[0] ? foldersTo(path, resolve(folder)) : [dirname(path)]) {
      if (seen.has(`${place}\0${path}`)) continue;
      seen.add(`${place}\0${path}`);
      const listed = await listedDigests(path, place, lists);
      digests.push(...listed.digests);
      reasons.push(...listed.reasons);
    }
  }
  const distinct = new Map(digests.map((known) => [`${known.algorithm} ${known.digest} ${known.source}`, known]));
  return {
    digests: [...distinct.values()],
    reason: [...new Set(reasons)].join("; ") || "no list of digests beside it, and no blob of the Hub's cache",
  };
}

/** The file's folder and those above it up to `top`; where it is not below `top`, these two. */
function foldersTo(file: string, top: string): string[] {
  const folders: string[] = [];
  for (let folder = dirname(file); folder !== dirname(folder); folder = dirname(folder)) {
    folders.push(folder);
    if (folder === top) return folders;
  }
  return [dirname(file), top];
}

/** The path and what its links lead to, one step after the other. */
async function linkChain(file: string): Promise<string[]> {
  const chain = [file];
  for (let path = file; chain.length <= maxLinks; ) {
    const target = await readlink(path).catch(() => undefined);
    if (target === undefined) break;
    // A folder on the way may be a link itself, and `..` then leads out of where it really is.
    const place = dirname(path);
    path = resolve(await realpath(place).catch(() => place), target);
    chain.push(path);
  }
  const real = await realpath(file).catch(() => file);
  return chain.includes(real) ? chain : [...chain, real];
}

function blobDigest(path: string): KnownDigest[] {
  const digest = basename(path);
  if (basename(dirname(path)) !== "blobs") return [];
  if (/^[0-9a-f]{64}$/.test(digest)) return [{ algorithm: "sha256", digest, source: "Hub cache" }];
  return /^[0-9a-f]{40}$/.test(digest) ? [{ algorithm: "git-blob", digest, source: "Hub cache" }] : [];
}

async function listedDigests(file: string, folder: string, lists: ReadLists): Promise<{ digests: KnownDigest[]; reasons: string[] }> {
  const digests: KnownDigest[] = [];
  const reasons: string[] = [];
  const names = await readdir(folder).catch((cause: NodeJS.ErrnoException): string[] => {
    if (cause.code !== "ENOENT" && cause.code !== "ENOTDIR") reasons.push(`${folder} cannot be searched for lists (${cause.code})`);
    return [];
  });
  // A list that is named after another file tells nothing of this one, unless it names it.
  const ofAnother = (source: string) => listedFile(source) !== basename(file) && names.includes(listedFile(source) ?? "");
  for (const source of names.filter(isDigestList).sort()) {
    const { text, digests: parsed, reason } = await readOnce(join(folder, source), lists);
    if (reason !== undefined) {
      if (!ofAnother(source)) reasons.push(reason);
      continue;
    }
    const alone = listedFile(source) === basename(file) && dirname(file) === folder;
    let mine = parsed.filter(({ path }) =>
      path === undefined ? alone : [resolve(folder, path), resolvedPath(folder, path)].includes(file),
    );
    if (mine.length === 0 && dirname(file) === folder) {
      const elsewhere = parsed.filter(({ path }) => path !== undefined && basename(path.replaceAll("\\", "/")) === basename(file));
      const others = await Promise.all(elsewhere.map(({ path = "" }) => exists(resolvedPath(folder, path))));
      mine = elsewhere.filter((_, i) => !others[i]);
      const places = new Set(mine.map(({ path }) => path));
      if (places.size > 1) {
        reasons.push(`${source} names ${places.size} files ${basename(file)} in different folders`);
        mine = [];
      }
    }
    const blake3 = mine.some(({ algorithm }) => algorithm === "blake3");
    if (blake3) reasons.push(`${source} has a BLAKE3 digest, which cannot be computed here`);
    if (mine.length > 0) {
      for (const { algorithm, digest } of mine) if (algorithm !== "blake3") digests.push({ algorithm, digest, source });
    } else if (text.includes(basename(file)) && !parsed.some(({ path }) => path?.includes(basename(file)))) {
      reasons.push(`${source} names it, but with no digest that can be read`);
    } else if (!ofAnother(source)) reasons.push(parsed.length === 0 ? `${source} holds no digest` : `${source} does not name it`);
  }
  return { digests, reasons };
}

/** A backslash separates folders in the lists of Windows; here it can be a part of a name. */
export function resolvedPath(folder: string, path: string): string {
  return resolve(folder, path.replaceAll("\\", "/"));
}

async function exists(path: string): Promise<boolean> {
  return await lstat(path).then(
    () => true,
    () => false,
  );
}

function readOnce(path: string, lists: ReadLists): Promise<ReadList> {
  const before = lists.get(path);
  if (before !== undefined) return before;
  const reading = readList(path);
  lists.set(path, reading);
  return reading;
}

/** A named pipe is refused: reading it would wait for a writer. */
async function readList(path: string): Promise<ReadList> {
  const unread = (why: string) => ({ text: "", digests: [], reason: `${path} cannot be read: ${why}` });
  try {
    const found = await stat(path);
    if (!found.isFile()) return unread("it is no regular file");
    if (found.size > maxListBytes) return unread(`it is longer than ${maxListBytes} bytes`);
    const text = listText(await readFile(path));
    return { text, digests: parseDigests(text, basename(path)), reason: undefined };
  } catch (cause) {
    return unread((cause as NodeJS.ErrnoException).code ?? (cause as Error).message);
  }
}
