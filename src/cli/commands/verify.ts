import type { Command } from "commander";
import { abortable } from "../../checkpoint/abortable.js";
import { openCheckpoint } from "../../checkpoint/open.js";
import { errorOf } from "../../errors.js";
import { awaitNative } from "../../native/failure.js";
import { addon } from "../../native/load.js";
import { formatBytes } from "../../units.js";
import type { Context } from "../context.js";
import { knownDigests } from "../known-digests.js";
import { options } from "../options.js";
import { type Progress, progressBar } from "../progress.js";

interface VerifyOptions {
  readonly weights?: string;
  readonly json?: true;
}

interface VerifiedShard {
  readonly name: string;
  readonly file: string;
  readonly byteLength: number;
  /** `unknown`: nobody published a digest, so only the structure was checked. */
  readonly status: "ok" | "mismatch" | "unknown";
  readonly sha256?: string;
  readonly expected: readonly { readonly sha256: string; readonly source: string }[];
}

const help = `
The structure is every rule of the format: headers, offsets, sizes, the index. The bytes are hashed where their SHA-256 is known:
  - files of the Hub's cache, which are stored under their SHA-256
  - files named in a SHA256SUMS beside them (sha256sum *.safetensors > SHA256SUMS)
A mismatch ends with exit code 65. Where no digest is known the shard is shown as "unknown", which is no failure.

Examples:
  mx verify ~/.cache/huggingface/hub/models--org--name/snapshots/<revision>
  mx verify ./folder --json | jq '.shards[] | select(.status != "ok")'`;

export function addVerify(program: Command, context: Context): void {
  program
    .command("verify")
    .description("Check a checkpoint's structure, and its bytes where a digest is known.")
    .argument("<path>", "checkpoint")
    .addOption(options.weights())
    .addOption(options.json())
    .addHelpText("after", help)
    .action((path: string, given: VerifyOptions) => verify(path, given, context));
}

async function verify(path: string, { weights, json }: VerifyOptions, { output, signal }: Context): Promise<void> {
  const checkpoint = await openCheckpoint(path, { signal, ...(weights === undefined ? {} : { weights }) });
  const known = await Promise.all(checkpoint.shards.map(async (shard) => ({ shard, expected: await knownDigests(shard.file) })));
  const files = known.filter(({ expected }) => expected.length > 0).map(({ shard }) => shard);
  const bar = progressBar(output, "hashing");
  let digests: Map<string, string>;
  try {
    digests = await hashFiles(files, bar, signal);
  } finally {
    bar.stop();
  }
  const shards = known.map(({ shard: { name, file, byteLength }, expected }): VerifiedShard => {
    const sha256 = digests.get(file);
    if (sha256 === undefined) return { name, file, byteLength, status: "unknown", expected };
    return { name, file, byteLength, status: expected.every((digest) => digest.sha256 === sha256) ? "ok" : "mismatch", sha256, expected };
  });
  if (json) output.json({ path: checkpoint.path, structure: "ok", shards });
  else {
    output.table(
      [{ title: "shard" }, { title: "bytes", right: true }, { title: "structure" }, { title: "SHA-256" }, { title: "known from" }],
      shards.map(({ name, byteLength, status, expected }) => [
        name,
        formatBytes(byteLength),
        "ok",
        status,
        expected.map(({ source }) => source).join(", "),
      ]),
    );
  }
  const bad = shards.filter(({ status }) => status === "mismatch");
  const [first] = bad;
  if (first === undefined) return;
  const wanted = first.expected.map(({ sha256, source }) => `${sha256} (${source})`).join(", ");
  throw errorOf(
    "ERR_VERIFY_MISMATCH",
    `${bad.length} of ${shards.length} shard(s) differ: ${first.file} has SHA-256 ${first.sha256}, expected ${wanted}`,
    {
      facts: { file: first.file, sha256: first.sha256, expected: first.expected },
    },
  );
}

/** SHA-256 of each file, in hex by path, on as many threads as there are processors. Rejects with the signal's reason at once. */
async function hashFiles(
  files: readonly { file: string; byteLength: number }[],
  bar: Progress,
  signal: AbortSignal,
): Promise<Map<string, string>> {
  const digests = new Map<string, string>();
  const totalBytes = files.reduce((sum, { byteLength }) => sum + byteLength, 0);
  const waiting = files.values();
  let bytes = 0;
  const worker = async () => {
    for (const { file, byteLength } of waiting) {
      signal.throwIfAborted();
      const digest = await awaitNative(() => addon().digestFiles([file], 1));
      digests.set(file, Buffer.from(digest).toString("hex"));
      bytes += byteLength;
      bar.update({ bytes, totalBytes });
    }
  };
  if (files.length === 0) return digests;
  const workers = Array.from({ length: Math.min(files.length, addon().availableParallelism()) }, worker);
  await abortable(Promise.all(workers), signal);
  return digests;
}
