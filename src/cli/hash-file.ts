import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { fsError } from "../checkpoint/fs-errors.js";
import { awaitNative } from "../native/failure.js";
import { addon } from "../native/load.js";
import type { KnownDigest } from "./known-digests.js";

const chunkBytes = 4 * 2 ** 20;

/**
 * The file's digests, in hex by algorithm: SHA-256 natively, all others in one pass of
 * `node:crypto`.
 */
export async function hashFile(
  file: string,
  byteLength: number,
  algorithms: readonly KnownDigest["algorithm"][],
  signal: AbortSignal,
): Promise<Record<string, string>> {
  const digests: Record<string, string> = {};
  if (algorithms.includes("sha256")) {
    digests.sha256 = Buffer.from(await awaitNative(() => addon().digestFiles([file], 1))).toString("hex");
  }
  const others = algorithms.filter((algorithm) => algorithm !== "sha256");
  if (others.length === 0) return digests;
  const hashes = others.map((algorithm) => ({ algorithm, hash: createHash(algorithm === "git-blob" ? "sha1" : algorithm) }));
  // Git hashes the kind and length of an object before its bytes.
  for (const { algorithm, hash } of hashes) if (algorithm === "git-blob") hash.update(`blob ${byteLength}\0`);
  try {
    for await (const chunk of createReadStream(file, { highWaterMark: chunkBytes })) {
      signal.throwIfAborted();
      for (const { hash } of hashes) hash.update(chunk);
    }
  } catch (cause) {
    signal.throwIfAborted();
    throw fsError(file, "read", cause);
  }
  for (const { algorithm, hash } of hashes) digests[algorithm] = hash.digest("hex");
  return digests;
}
