import { stat } from "node:fs/promises";
import { basename, dirname } from "node:path";
import { type Command, Option } from "commander";
import { abortable } from "../../checkpoint/abortable.js";
import { openCheckpoint } from "../../checkpoint/open.js";
import { errorOf } from "../../errors.js";
import { addon } from "../../native/load.js";
import { formatBytes } from "../../units.js";
import type { Context } from "../context.js";
import { hashFile } from "../hash-file.js";
import { type KnownDigest, knownDigests, type ReadLists } from "../known-digests.js";
import { type MissingFile, missingFiles } from "../missing-files.js";
import { options } from "../options.js";
import { type Progress, progressBar } from "../progress.js";

interface VerifyOptions {
  readonly weights?: string;
  readonly json?: true;
  readonly require?: true;
  readonly ignoreMissing?: true;
}

/** A shard, the index, or what a list names besides. */
interface VerifiedFile {
  readonly name: string;
  readonly file: string;
  /** Null for what is missing. */
  readonly byteLength: number | null;
  /**
   * `unverified`: only the structure was checked, for `reason`. `missing`: a list names it, and it
   * is not there.
   */
  readonly status: "ok" | "mismatch" | "missing" | "unverified";
  readonly reason?: string;
  readonly sha256?: string;
  /** What the bytes have, in hex by algorithm. */
  readonly digests: Readonly<Record<string, string>>;
  readonly expected: readonly KnownDigest[];
}

/** Shorter than that it may be what the file system rounds. */
const minSparseBytes = 2 ** 20;

const help = `
Two things are checked. The structure: headers, offsets, sizes and the index must keep every rule of the format. The bytes: each file is hashed
where its digest is known, which is so for
  - blobs in the Hub's cache: their names are their SHA-256 or Git object name; symbolic links to them are followed
  - files that a list names: SHA256SUMS, sha256sum.txt, checksums.txt, model.safetensors.sha256 and the like; SHA-512, SHA-1 and MD5 too.
    Lists are looked for beside each file, and in the folders above it up to the checkpoint's
Each file ends as "ok", "mismatch", "missing" or "unverified". "missing" are weights that a list in the folder names and that are not there, as
sha256sum -c counts them. A mismatch or a missing file ends with exit code 65. So does "unverified", if --require is given.

Examples:
  mx verify ~/.cache/huggingface/hub/models--org--name/snapshots/<revision>
  mx verify ./folder --json | jq '.shards[] | select(.status != "ok")'`;

export function addVerify(program: Command, context: Context): void {
  program
    .command("verify")
    .description("Check a checkpoint's structure, and its bytes where a digest is known.")
    .argument("<path>", "checkpoint")
    .addOption(options.weights())
    .addOption(new Option("--require", "fail if a file has no digest to check it against"))
    .addOption(new Option("--ignore-missing", "pass over weights that a list names and that are not there"))
    .addOption(options.json())
    .addHelpText("after", help)
    .action((path: string, given: VerifyOptions) => verify(path, given, context));
}

async function verify(path: string, { weights, json, require, ignoreMissing }: VerifyOptions, { output, signal }: Context): Promise<void> {
  const checkpoint = await openCheckpoint(path, { signal, ...(weights === undefined ? {} : { weights }) });
  const folder = checkpoint.kind === "folder" ? checkpoint.path : dirname(checkpoint.path);
  const lists: ReadLists = new Map();
  const found = await Promise.all(
    checkpoint.shards.map(async (shard) => {
      const { digests, reason } = await knownDigests(shard.file, folder, lists);
      return { shard, digests, reason: `${reason}${await sparseNote(shard)}` };
    }),
  );
  const index = await knownIndex(checkpoint.indexFile, folder, lists);
  const known = [...found, ...index];
  const files = known
    .filter(({ digests }) => digests.length > 0)
    .map(({ shard, digests }) => ({ ...shard, algorithms: [...new Set(digests.map(({ algorithm }) => algorithm))] }));
  const bar = progressBar(output, "hashing");
  let hashed: Map<string, Record<string, string>>;
  try {
    hashed = await hashFiles(files, bar, signal);
  } finally {
    bar.stop();
  }
  const verified = known.map(({ shard: { name, file, byteLength }, digests: expected, reason }): VerifiedFile => {
    const digests = hashed.get(file) ?? {};
    if (expected.length === 0) return { name, file, byteLength, status: "unverified", reason, digests, expected };
    const status = expected.every(({ algorithm, digest }) => digests[algorithm] === digest) ? "ok" : "mismatch";
    return { name, file, byteLength, status, ...(digests.sha256 === undefined ? {} : { sha256: digests.sha256 }), digests, expected };
  });
  // Who names one file, or picks some, has not asked for the others.
  const whole = checkpoint.kind === "folder" && weights === undefined && !ignoreMissing;
  const missing = whole ? (await missingFiles(folder, lists)).map(missingRow) : [];
  const shards = [...verified.slice(0, found.length), ...missing];
  const rows = [...verified, ...missing];
  if (json) output.json({ path: checkpoint.path, structure: "ok", shards, index: verified[found.length] ?? null });
  else {
    output.table(
      [
        { title: "file" },
        { title: "bytes", right: true },
        { title: "structure" },
        { title: "bytes are" },
        { title: "known from, or why not" },
      ],
      rows.map(({ name, byteLength, status, expected, reason }) => [
        name,
        byteLength === null ? "-" : formatBytes(byteLength),
        byteLength === null ? "-" : "ok",
        status,
        reason ?? expected.map(({ source, algorithm }) => `${source} (${algorithm})`).join(", "),
      ]),
    );
  }
  const [bad] = verified.filter(({ status }) => status === "mismatch");
  if (bad !== undefined) throw mismatch(bad, verified);
  const [gone] = missing;
  if (gone !== undefined) throw absent(gone, missing.length);
  const open = shards.filter(({ status }) => status === "unverified");
  const [first] = open;
  if (require && first !== undefined) {
    throw errorOf("ERR_VERIFY_UNVERIFIED", `${open.length} of ${shards.length} shard(s) are unverified: ${first.file}: ${first.reason}`, {
      facts: { file: first.file, unverified: open.length },
    });
  }
}

function missingRow({ name, file, expected }: MissingFile): VerifiedFile {
  const reason = `not there, but named in ${[...new Set(expected.map(({ source }) => source))].join(", ")}`;
  return { name, file, byteLength: null, status: "missing", reason, digests: {}, expected };
}

function absent({ file, reason }: VerifiedFile, missing: number) {
  return errorOf("ERR_VERIFY_MISSING", `${missing} file(s) are missing that a list of digests names: ${file}: ${reason}`, {
    facts: { file, missing },
  });
}

/**
 * The index, where a digest of it is known: its structure is checked in any case, and lists are
 * often of the weights alone.
 */
async function knownIndex(file: string | undefined, folder: string, lists: ReadLists) {
  if (file === undefined) return [];
  const { digests } = await knownDigests(file, folder, lists);
  if (digests.length === 0) return [];
  const { size: byteLength } = await stat(file);
  return [{ shard: { name: basename(file), file, byteLength }, digests, reason: "" }];
}

/**
 * Says of a file that less of it is stored than it is long. That proves nothing: zeros may have
 * been left out on purpose, and file systems that compress store less, too. But it is also how a
 * download looks that reserved its length and did not fill it.
 */
async function sparseNote({ file, byteLength }: { readonly file: string; readonly byteLength: number }): Promise<string> {
  const blocks = await stat(file).then(
    (found) => found.blocks,
    () => 0,
  );
  const storedBytes = 512 * blocks;
  // A file system that counts no blocks at all does not know.
  if (storedBytes === 0 || storedBytes + minSparseBytes > byteLength) return "";
  return `; only ${formatBytes(storedBytes)} of its ${formatBytes(byteLength)} are stored, the rest may be zeros that a download never filled`;
}

function mismatch({ file, sha256, digests, expected }: VerifiedFile, files: readonly VerifiedFile[]) {
  const count = files.filter(({ status }) => status === "mismatch").length;
  const wanted = expected.map(({ algorithm, digest, source }) => `${algorithm} ${digest} (${source})`).join(", ");
  const has = Object.entries(digests).map(([algorithm, digest]) => `${algorithm} ${digest}`);
  const contradictory = expected.some((one) => expected.some((other) => one.algorithm === other.algorithm && one.digest !== other.digest));
  const contradiction = contradictory ? "; what is expected contradicts itself" : "";
  const message = `${count} of ${files.length} file(s) differ: ${file} has ${has.join(", ")}, expected ${wanted}${contradiction}`;
  return errorOf("ERR_VERIFY_MISMATCH", message, { facts: { file, ...(sha256 === undefined ? {} : { sha256 }), digests, expected } });
}

/**
 * The wanted digests of each file, in hex by path and algorithm, on as many threads as there are
 * processors. Rejects with the signal's reason at once.
 */
async function hashFiles(
  files: readonly { file: string; byteLength: number; algorithms: readonly KnownDigest["algorithm"][] }[],
  bar: Progress,
  signal: AbortSignal,
): Promise<Map<string, Record<string, string>>> {
  const digests = new Map<string, Record<string, string>>();
  const totalBytes = files.reduce((sum, { byteLength }) => sum + byteLength, 0);
  const waiting = files.values();
  let bytes = 0;
  const worker = async () => {
    for (const { file, byteLength, algorithms } of waiting) {
      signal.throwIfAborted();
      digests.set(file, await hashFile(file, byteLength, algorithms, signal));
      bytes += byteLength;
      bar.update({ bytes, totalBytes });
    }
  };
  if (files.length === 0) return digests;
  const workers = Array.from({ length: Math.min(files.length, addon().availableParallelism()) }, worker);
  await abortable(Promise.all(workers), signal);
  return digests;
}
