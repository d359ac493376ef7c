import type { Command } from "commander";
import type { Checkpoint } from "../../checkpoint/checkpoint.js";
import { openCheckpoint } from "../../checkpoint/open.js";
import type { DriverName } from "../../envs.js";
import type { ErrorCode } from "../../error-codes.js";
import { ModelExpressError } from "../../errors.js";
import { loadCheckpoint } from "../../loader/load-checkpoint.js";
import { addon } from "../../native/load.js";
import { formatBytes, formatDuration, formatRate } from "../../units.js";
import type { Context } from "../context.js";
import { type GivenOptions, integer, options } from "../options.js";
import type { Output } from "../output.js";
import { dropCache, plainRead } from "../plain-read.js";
import { progressBar } from "../progress.js";

interface BenchArguments extends GivenOptions {
  readonly rounds: number;
}

type Cache = "warm" | "cold";

/** One way to bring the bytes, timed over the rounds. */
interface BenchRow {
  readonly cache: Cache;
  readonly name: DriverName | "plain read";
  /** Medians; null where the driver is refused here. */
  readonly ms: number | null;
  readonly bytesPerSecond: number | null;
  /** This speed over that of the plain read, of the very medians: above 1 it is the faster one. */
  readonly ratioToPlain: number | null;
  readonly refused?: string;
}

/** The drivers that copy. `map` copies nothing: its time would say nothing of reading. */
const drivers = ["auto", "pread", "io_uring"] as const satisfies readonly DriverName[];
/** A driver that is refused here leaves its row empty. */
const refusals: readonly ErrorCode[] = ["ERR_TRANSFER_IO_URING_REFUSED", "ERR_TRANSFER_IO_URING_UNSOUND", "ERR_TRANSFER_DIRECT_REFUSED"];
/** A cold round counts when no more than this part of the bytes came from the cache. */
const coldShare = 0.02;

const help = `
Every round loads the checkpoint whole with each driver and reads the files plainly (into memory that is used again, without a place for every
byte). A first round is not counted. Cold rounds drop the files from the page cache before each load, where the system allows that.

Example:
  mx bench ./folder --rounds 9`;

export function addBench(program: Command, context: Context): void {
  program
    .command("bench")
    .description("Time the drivers on your own checkpoint, against plain reads of the same files.")
    .argument("<path>", "checkpoint")
    .option("--rounds <count>", "rounds that are counted", integer(1, 999), 5)
    .addOption(options.threads())
    .addOption(options.weights())
    .addOption(options.json())
    .addHelpText("after", help)
    .action((path: string, given: BenchArguments) => bench(path, given, context));
}

async function bench(path: string, { rounds, threads, weights, json }: BenchArguments, { output, signal }: Context): Promise<void> {
  const checkpoint = await openCheckpoint(path, { signal, ...(weights === undefined ? {} : { weights }) });
  const warm = await measure(checkpoint, "warm", { rounds, threads, signal, output });
  const whyNotCold = await cannotDrop(checkpoint, signal);
  const cold = whyNotCold === undefined ? await measure(checkpoint, "cold", { rounds, threads, signal, output }) : [];
  if (json) {
    output.json({
      path: checkpoint.path,
      byteLength: checkpoint.byteLength,
      rounds,
      rows: [...warm, ...cold],
      notMeasured: { cold: whyNotCold },
    });
    return;
  }
  output.line(
    `${checkpoint.path}: ${formatBytes(checkpoint.byteLength)} in ${checkpoint.shards.length} shard(s), medians of ${rounds} round(s)`,
  );
  output.line();
  output.table(
    [
      { title: "cache" },
      { title: "driver" },
      { title: "time", right: true },
      { title: "speed", right: true },
      { title: "against plain read", right: true },
    ],
    [...warm, ...cold].map(({ cache, name, ms, bytesPerSecond, ratioToPlain, refused }) =>
      ms === null || bytesPerSecond === null || ratioToPlain === null
        ? [cache, name, "-", "-", `refused: ${refused}`]
        : [cache, name, formatDuration(ms), formatRate(bytesPerSecond), `${ratioToPlain.toFixed(2)}x as fast`],
    ),
  );
  if (whyNotCold !== undefined) output.line(`cold: not measured, ${whyNotCold}`);
}

interface Measuring {
  readonly rounds: number;
  readonly threads: number | undefined;
  readonly signal: AbortSignal;
  readonly output: Output;
}

async function measure(checkpoint: Checkpoint, cache: Cache, { rounds, threads, signal, output }: Measuring): Promise<BenchRow[]> {
  const files = checkpoint.shards.map(({ file }) => file);
  const parallelism = threads ?? addon().availableParallelism();
  const names = ["plain read", ...drivers] as const;
  const times = new Map<string, number[]>(names.map((name) => [name, []]));
  const refused = new Map<string, string>();
  const bar = progressBar(output, `timing, ${cache}`);
  const each = checkpoint.byteLength;
  let done = 0;
  const timed = { checkpoint, files, parallelism, threads, signal, onProgress: (bytes: number) => tell(bytes) };
  const tell = (bytes: number) => bar.update({ bytes: done + Math.min(bytes, each), totalBytes: (rounds + 1) * names.length * each });
  try {
    for (let round = 0; round <= rounds; round++) {
      // Each round starts with another one, so that none always runs on the memory that the same
      // neighbour left.
      for (let i = 0; i < names.length; i++) {
        const name = names[(i + round) % names.length] ?? "plain read";
        if (!refused.has(name)) {
          if (cache === "cold") await dropCache(files);
          try {
            const ms = name === "plain read" ? await timePlain(timed) : await timeLoad(timed, name);
            if (round > 0) times.get(name)?.push(ms);
          } catch (thrown) {
            if (!(thrown instanceof ModelExpressError) || !refusals.includes(thrown.code)) throw thrown;
            refused.set(name, thrown.message);
          }
        }
        done += each;
        tell(0);
      }
    }
  } finally {
    bar.stop();
  }
  const plainMs = median(times.get("plain read") ?? []);
  return names.map((name): BenchRow => {
    const reason = refused.get(name);
    if (reason !== undefined) return { cache, name, ms: null, bytesPerSecond: null, ratioToPlain: null, refused: reason };
    const ms = median(times.get(name) ?? []);
    return { cache, name, ms, bytesPerSecond: (each / ms) * 1000, ratioToPlain: plainMs / ms };
  });
}

/** What one timed run needs. */
interface Timed extends Omit<Measuring, "rounds" | "output"> {
  readonly checkpoint: Checkpoint;
  readonly files: readonly string[];
  readonly parallelism: number;
  readonly onProgress: (bytes: number) => void;
}

async function timePlain({ files, parallelism, signal, onProgress }: Timed): Promise<number> {
  const begin = performance.now();
  await plainRead(files, parallelism, signal, onProgress);
  return performance.now() - begin;
}

async function timeLoad({ checkpoint, threads, signal, onProgress }: Timed, driver: DriverName): Promise<number> {
  const begin = performance.now();
  const model = await loadCheckpoint(checkpoint, {
    driver,
    signal,
    onProgress: ({ bytes }) => onProgress(bytes),
    ...(threads === undefined ? {} : { threads }),
  });
  const ms = performance.now() - begin;
  await model.close();
  return ms;
}

/** Why a cold load cannot be had here, if it cannot: tries it. */
async function cannotDrop(checkpoint: Checkpoint, signal: AbortSignal): Promise<string | undefined> {
  if (!(await dropCache(checkpoint.shards.map(({ file }) => file))))
    return "`dd iflag=nocache`, which drops files from the page cache, is not there";
  const model = await loadCheckpoint(checkpoint, { driver: "auto", signal });
  const { bytesFromCache, bytes } = model.report;
  await model.close();
  if (bytesFromCache === null || bytesFromCache > bytes * coldShare) return "the system keeps the files in the page cache";
  return undefined;
}

function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  const high = sorted[middle] ?? Number.NaN;
  return sorted.length % 2 === 1 ? high : ((sorted[middle - 1] ?? high) + high) / 2;
}
