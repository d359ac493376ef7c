import type { Command } from "commander";
import { type DeviceName, memoryKindOf } from "../../arena/device-name.js";
import { openCheckpoint } from "../../checkpoint/open.js";
import { ModelExpressError } from "../../errors.js";
import { batchOf, piecesOf } from "../../loader/batch.js";
import { resolveLoadOptions } from "../../loader/options.js";
import type { LoadPlan } from "../../plan/load-plan.js";
import { planLoad } from "../../plan/plan-load.js";
import { readMemoryOf } from "../../probe/device-memory.js";
import type { AvailableMemory } from "../../probe/memory.js";
import { driverOf } from "../../transfer/drivers.js";
import { formatBytes } from "../../units.js";
import type { Context } from "../context.js";
import { type GivenOptions, libraryOptions, options } from "../options.js";

const help = `
Nothing is allocated and no tensor is read. With --device cuda:N the plan is that of a load to a GPU, which is asked for its free memory, and need not be there. With --json every range, every piece and the place of every tensor are listed. How the driver will cut that into reads is asked of the driver: what the page cache holds, and what the file system refuses, shows only when a load reads.

Examples:
  mx plan ./folder
  mx plan ./folder --device cuda:0
  mx plan ./folder --include 'model.layers.0.*' --alignment 256 --json`;

export function addPlan(program: Command, context: Context): void {
  program
    .command("plan")
    .description("Show what a load would read from where to where, and whether it fits the memory there is.")
    .argument("<path>", "checkpoint")
    .addOption(options.device())
    .addOption(options.driver())
    .addOption(options.threads())
    .addOption(options.include())
    .addOption(options.exclude())
    .addOption(options.placement())
    .addOption(options.alignment())
    .addOption(options.maxChunk())
    .addOption(options.weights())
    .addOption(options.json())
    .addHelpText("after", help)
    .action((path: string, given: GivenOptions) => plan(path, given, context));
}

async function plan(path: string, given: GivenOptions, { output, signal }: Context): Promise<void> {
  const loadOptions = libraryOptions(given);
  const settings = resolveLoadOptions(loadOptions);
  const { device, driver } = settings;
  const checkpoint = await openCheckpoint(path, { signal, weights: loadOptions.weights });
  const planned = planLoad(checkpoint, { ...settings.plan, availableMemory: await memoryOf(device) });
  const memoryKind = memoryKindOf(device);
  const ways = driverOf(driver, memoryKind).forecast({ ...batchOf(checkpoint, piecesOf(planned, 0n), settings), memory: memoryKind });
  if (given.json) {
    output.json({ ...planned.toJSON(), reads: { driver, ways } });
    return;
  }
  const { totals, memory } = planned;
  const available =
    memory.availableBytes === null
      ? "what is available is not known"
      : `${formatBytes(memory.availableBytes)} available (${memory.limitedBy}): ${memory.fits ? "fits" : "does not fit"}`;
  output.pairs([
    ["path", planned.checkpoint.path],
    ["device", planned.device],
    ["tensors", `${totals.tensors} of ${planned.checkpoint.tensors}`],
    ["bytes", `${totals.bytes} (${formatBytes(totals.bytes)})`],
    ["reads", `${totals.ranges} range(s) of files to ${totals.pieces} piece(s) of memory, by the driver ${driver}`],
    ["alignment", alignmentOf(planned)],
    ["allocation", `${formatBytes(totals.allocationBytes)}, of which ${totals.alignmentWasteBytes} bytes hold no tensor`],
    ["memory", `${formatBytes(memory.requiredBytes)} needed, and ${formatBytes(memory.slackBytes)} of the host's beside it, ${available}`],
  ]);
  output.line();
  output.table(
    [
      { title: "way" },
      { title: "reads", right: true },
      { title: "up to", right: true },
      { title: "multiples of", right: true },
      { title: "windows", right: true },
      { title: "which bytes" },
    ],
    ways.map(({ path, reads, maxReadBytes, alignBytes, windows, of }) => [
      path,
      String(reads),
      reads === 0 ? "-" : formatBytes(maxReadBytes),
      formatBytes(alignBytes),
      windows === undefined ? "-" : String(windows),
      of,
    ]),
  );
  output.line();
  output.table(
    [
      { title: "shard" },
      { title: "placement" },
      { title: "tensors", right: true },
      { title: "bytes", right: true },
      { title: "ranges", right: true },
      { title: "pieces", right: true },
    ],
    planned.shards.map((shard) => [
      shard.name,
      shard.placement,
      String(shard.tensors),
      formatBytes(shard.bytes),
      String(shard.rangeCount),
      String(shard.pieceCount),
    ]),
  );
}

/** What tensors are aligned to: packed ones to nothing, whatever was asked. */
function alignmentOf({ placement, alignmentBytes }: LoadPlan): string {
  const asked = alignmentBytes === "element" ? "of each tensor's elements" : formatBytes(alignmentBytes);
  return placement === "packed"
    ? `none for single tensors: packed placement keeps the file's order, without gaps (asked: ${asked})`
    : asked;
}

/** A plan can be made for a machine other than this one. */
async function memoryOf(device: DeviceName): Promise<AvailableMemory> {
  try {
    return await readMemoryOf(device);
  } catch (thrown) {
    if (thrown instanceof ModelExpressError && thrown.code.startsWith("ERR_CUDA_")) return { bytes: null, limitedBy: "unknown" };
    throw thrown;
  }
}
