import type { Command } from "commander";
import { abortable } from "../../checkpoint/abortable.js";
import { loadCheckpoint } from "../../loader/load-checkpoint.js";
import type { LoadedModel } from "../../loader/loaded-model.js";
import type { LoadReport, ShardReport } from "../../loader/report.js";
import { whyNot } from "../../plan/memory.js";
import { formatBytes, formatDuration, formatRate } from "../../units.js";
import type { Context } from "../context.js";
import { type GivenOptions, libraryOptions, options } from "../options.js";
import type { Output } from "../output.js";
import { progressBar } from "../progress.js";

interface LoadArguments extends GivenOptions {
  readonly digest?: true;
}

const help = `
Drivers into host memory:
  auto      (default) what the page cache holds is read from there, the rest with io_uring and O_DIRECT, both at once;
            falls back where the kernel, a container or the file system refuses, and the report says so
  pread     buffered reads by several threads
  io_uring  O_DIRECT with a deep queue; an error where that is refused
  map       the file is mapped, nothing is copied; a file that is cut afterwards kills the process
  nixl      a plugin of NVIDIA's NIXL reads; NIXL must be installed (see mx probe)
Drivers into the memory of a GPU, with --device cuda:N:
  auto      (default) GPUDirect Storage where the machine has it and for the files that can be registered, else staged;
            the report says why
  nixl      GPUDirect Storage by NIXL's plugin GDS_MT, or by the one named with --plugin
  staged    files are read into pinned host memory and copied from there

With --digest the SHA-256 of every tensor, hashed as it lies in memory, is shown like sha256sum shows it.
With --json: { "tensors": [{ name, dtype, shape, byteLength, address, device, sha256 }], "report": { ... } }, sha256 with --digest only.

Examples:
  mx load ./folder
  mx load ./folder --device cuda:0
  mx load ./folder --include '*.self_attn.*' --exclude '*.bias' --timeout 60s
  mx load model.safetensors --json --digest | jq -r '.tensors[] | .sha256 + "  " + .name'`;

export function addLoad(program: Command, context: Context): void {
  program
    .command("load")
    .description("Load a checkpoint into memory and show how that went.")
    .argument("<path>", "checkpoint")
    .addOption(options.device())
    .addOption(options.driver())
    .addOption(options.plugin())
    .addOption(options.include())
    .addOption(options.exclude())
    .addOption(options.placement())
    .addOption(options.alignment())
    .addOption(options.threads())
    .addOption(options.maxChunk())
    .addOption(options.timeout())
    .addOption(options.ignoreMemory())
    .addOption(options.weights())
    .option("--digest", "SHA-256 of every tensor")
    .addOption(options.json())
    .addHelpText("after", help)
    .action((path: string, given: LoadArguments) => load(path, given, context));
}

async function load(path: string, given: LoadArguments, { output, signal }: Context): Promise<void> {
  const bar = progressBar(output, "loading");
  let model: LoadedModel;
  try {
    model = await loadCheckpoint(path, { ...libraryOptions(given), signal, onProgress: (progress) => bar.update(progress) });
  } finally {
    bar.stop();
  }
  try {
    const digests = given.digest ? await abortable(model.digest(), signal) : undefined;
    if (given.json) {
      const tensors = [...model.tensors.values()].map(({ name, dtype, shape, byteLength, address, device }) => {
        return { name, dtype, shape, byteLength, address, device, ...(digests === undefined ? {} : { sha256: digests.get(name) }) };
      });
      output.json({ tensors, report: model.report });
    } else {
      for (const [name, sha256] of digests ?? []) output.line(`${sha256}  ${name}`);
      if (digests !== undefined) output.line();
      showReport(model.report, output);
    }
  } finally {
    // Hashing cannot be stopped, and a close would wait for it: after an interrupt the end of the
    // process frees the memory.
    if (!signal.aborted) await model.close();
  }
}

/** A report for people. */
export function showReport(report: LoadReport, output: Output): void {
  const { times } = report;
  output.pairs([
    ["loaded", `${report.tensors} tensor(s), ${report.bytes} bytes (${formatBytes(report.bytes)})`],
    ["driver", `${report.driver.asked}: ${report.driver.used.join(" and ") || "nothing to read"}`],
    [
      "speed",
      report.bytesPerSecond === null
        ? "nothing was moved"
        : `${formatRate(report.bytesPerSecond)} with ${report.threads} thread(s), ${report.reads} read(s)`,
    ],
    ["time", formatDuration(times.totalMs)],
    [
      "  of which",
      `open ${formatDuration(times.openMs)}, plan ${formatDuration(times.planMs)}, allocate ${formatDuration(times.allocateMs)}, transfer ${formatDuration(times.transferMs)}`,
    ],
    ["memory", `${formatBytes(report.allocationBytes)}${memoryKind(report)}`],
    ...ignoredPairs(report),
    ...nixlPairs(report),
  ]);
  output.line();
  output.table(
    [
      { title: "shard" },
      { title: "read" },
      { title: "bytes", right: true },
      { title: "from cache", right: true },
      { title: "from disk", right: true },
      { title: "why" },
    ],
    report.shards.map((shard) => [
      shard.name,
      shard.used.join(" and ") || "-",
      formatBytes(shard.bytes),
      known(shard.bytesFromCache),
      known(shard.bytesFromDisk),
      [shard.reason, ...notKept(shard)].join("; "),
    ]),
  );
}

function notKept({ identityNotKept }: ShardReport): string[] {
  if (identityNotKept.length === 0) return [];
  const names = { inode: "inode numbers", mtime: "times of modification" } as const;
  return [`its file system keeps no ${identityNotKept.map((what) => names[what]).join(" and no ")}`];
}

function memoryKind({ device, hugePageBytes }: LoadReport): string {
  if (device !== "host") return ` on ${device}`;
  return hugePageBytes === null ? ", huge pages unknown" : `, ${formatBytes(hugePageBytes)} in huge pages`;
}

function ignoredPairs({ memory, device }: LoadReport): [string, string][] {
  return memory.check === "ignore" ? [["  check", memory.fits ? "ignored: it fits" : `ignored: ${whyNot(memory, device)}`]] : [];
}

function nixlPairs({ nixl }: LoadReport): [string, string][] {
  if (nixl === null) return [];
  const { plugin, windows, ms, registrations, path } = nixl;
  const pairs: [string, string][] = [
    ["NIXL", `${plugin}: ${windows} window(s) in ${formatDuration(ms)}`],
    [
      "  registered",
      `${registrations.count} time(s), ${formatBytes(registrations.bytes)} of memory, in ${formatDuration(registrations.ms)}`,
    ],
  ];
  if (path !== undefined) pairs.push(["  path", `${path.taken}: ${path.why}`]);
  return pairs;
}

function known(bytes: number | null): string {
  return bytes === null ? "?" : formatBytes(bytes);
}
