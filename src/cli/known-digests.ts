import { readFile, readlink, stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { errorOf } from "../errors.js";

/** A digest that somebody published for a file. */
export interface KnownDigest {
  /** 64 lower-case hex digits. */
  readonly sha256: string;
  readonly source: "Hub cache" | "SHA256SUMS";
}

/**
 * Digests known for a file: that of the blob's name when it is a link into the Hub's cache (large files are stored under their SHA-256), and
 * that of a `SHA256SUMS` beside it.
 * @throws ERR_VERIFY_SUMS_INVALID
 */
export async function knownDigests(file: string): Promise<KnownDigest[]> {
  const known: KnownDigest[] = [];
  const target = await readlink(file).catch(() => "");
  const blob = basename(target);
  // Small files are stored under their Git object name instead, 40 digits.
  if (basename(dirname(target)) === "blobs" && /^[0-9a-f]{64}$/.test(blob)) known.push({ sha256: blob, source: "Hub cache" });
  const sums = join(dirname(file), "SHA256SUMS");
  const text = await readSums(sums).catch((cause: NodeJS.ErrnoException) => {
    if (cause.code === "ENOENT" || cause.code === "ENOTDIR") return "";
    throw errorOf("ERR_CHECKPOINT_IO", `${sums} cannot be read: ${cause.message}`, {
      facts: { file: sums, errno: cause.code ?? "unknown" },
      cause,
    });
  });
  const sha256 = parseSums(text, sums).get(basename(file));
  if (sha256 !== undefined) known.push({ sha256, source: "SHA256SUMS" });
  return known;
}

/** A named pipe is refused: reading it would wait for a writer. */
async function readSums(path: string): Promise<string> {
  const found = await stat(path);
  if (!found.isFile() && !found.isDirectory()) throw Object.assign(new Error("it is no regular file"), { code: "EINVAL" });
  return await readFile(path, "utf8");
}

/** File name to digest, of what `sha256sum` writes: text or binary mode, its escapes, and the BSD form of `--tag`. Paths may begin with `./`. */
export function parseSums(text: string, file: string): Map<string, string> {
  const sums = new Map<string, string>();
  for (const [i, line] of text.split("\n").entries()) {
    if (line.trim() === "" || line.startsWith("#")) continue;
    const gnu = /^(\\?)([0-9a-fA-F]{64}) [ *](.+?)\r?$/.exec(line);
    const bsd = /^(\\?)SHA256 \((.+)\) = ([0-9a-fA-F]{64})\r?$/.exec(line);
    const [escaped, sha256, name] = gnu ? [gnu[1], gnu[2], gnu[3]] : [bsd?.[1], bsd?.[3], bsd?.[2]];
    if (sha256 === undefined || name === undefined) {
      throw errorOf(
        "ERR_VERIFY_SUMS_INVALID",
        `${file} line ${i + 1} is not a SHA-256 and a file name: ${JSON.stringify(line.slice(0, 100))}`,
        {
          facts: { file, line: i + 1 },
        },
      );
    }
    const plain = escaped ? name.replace(/\\([\\nr])/g, (_, c: string) => ({ n: "\n", r: "\r" })[c] ?? c) : name;
    sums.set(plain.replace(/^\.\//, ""), sha256.toLowerCase());
  }
  return sums;
}
