import type { Command } from "commander";
import type { DeviceName } from "../../arena/device-name.js";
import { openCheckpoint } from "../../checkpoint/open.js";
import { ModelExpressError } from "../../errors.js";
import { planLoad } from "../../plan/plan-load.js";
import { readMemoryOf } from "../../probe/device-memory.js";
import type { AvailableMemory } from "../../probe/memory.js";
import { gdsLimits, readsByGds } from "../../transfer/gds/load-limits.js";
import { formatBytes } from "../../units.js";
import type { Context } from "../context.js";
import { type GivenOptions, libraryOptions, options } from "../options.js";

const help = `
Nothing is allocated and no tensor is read. With --device cuda:N the plan is that of a load to a GPU, which is asked for its free memory, and need not be there. With --json every range, every chunk and the place of every tensor are listed.

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
  const { weights, ...planOptions } = libraryOptions(given);
  const checkpoint = await openCheckpoint(path, { signal, ...(weights === undefined ? {} : { weights }) });
  const { device = "host" } = planOptions;
  // As a load would read: to a device by GDS_MT where it can.
  const chunk = readsByGds("auto", undefined, device) ? gdsLimits().maxChunkBytes : undefined;
  const planned = planLoad(checkpoint, { maxChunkBytes: chunk, ...planOptions, availableMemory: await memoryOf(device) });
  if (given.json) {
    output.json(planned);
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
    ["reads", `${totals.chunks} chunk(s) of up to ${formatBytes(planned.maxChunkBytes)} in ${totals.ranges} range(s)`],
    ["alignment", planned.alignmentBytes === "element" ? "of each tensor's elements" : formatBytes(planned.alignmentBytes)],
    ["allocation", `${formatBytes(totals.allocationBytes)}, of which ${totals.alignmentWasteBytes} bytes hold no tensor`],
    ["memory", `${formatBytes(memory.requiredBytes)} needed, and ${formatBytes(memory.slackBytes)} of the host's beside it, ${available}`],
  ]);
  output.line();
  output.table(
    [
      { title: "shard" },
      { title: "placement" },
      { title: "tensors", right: true },
      { title: "bytes", right: true },
      { title: "ranges", right: true },
      { title: "chunks", right: true },
    ],
    planned.shards.map((shard) => [
      shard.name,
      shard.placement,
      String(shard.tensors),
      formatBytes(shard.bytes),
      String(shard.rangeCount),
      String(shard.chunkCount),
    ]),
  );
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
