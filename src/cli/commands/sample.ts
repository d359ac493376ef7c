import { type Command, Option } from "commander";
import { type SampleShape, sampleShapes } from "../../sample/shapes.js";
import { writeSample } from "../../sample/write-sample.js";
import { formatBytes } from "../../units.js";
import type { Context } from "../context.js";
import { bytes, choice, integer, options } from "../options.js";
import { progressBar } from "../progress.js";

interface SampleArguments {
  readonly shape: SampleShape;
  readonly bytes: number;
  readonly shards: number;
  readonly seed: number;
  readonly force?: true;
  readonly json?: true;
}

const help = `
Shapes:
  llama       a dense transformer in the proportions of Llama 3
  many-small  3,050 tensors of a mixture of experts
  few-large   8 fused expert matrices

The bytes are random, but equal for equal seeds. Files appear under their names once they are whole.

Examples:
  mx sample /tmp/sample --bytes 2GiB --shards 4
  mx sample /tmp/experts --shape many-small --bytes 256MiB --seed 7`;

export function addSample(program: Command, context: Context): void {
  program
    .command("sample")
    .description("Write a checkpoint with real names and proportions and random bytes, to try things on.")
    .argument("<folder>", "where to; made when it is not there")
    .addOption(choice("--shape <name>", "kind of model", sampleShapes).default("llama"))
    .addOption(new Option("--bytes <size>", "bytes of all tensors together").argParser(bytes).default(256 * 2 ** 20, "256MiB"))
    .addOption(new Option("--shards <count>", "number of files").argParser(integer(1, 99_999)).default(1))
    .addOption(new Option("--seed <number>", "equal seeds give equal bytes").argParser(integer(0, Number.MAX_SAFE_INTEGER)).default(1))
    .option("--force", "replace the weights that are in the folder")
    .addOption(options.json())
    .addHelpText("after", help)
    .action((folder: string, given: SampleArguments) => sample(folder, given, context));
}

async function sample(folder: string, { json, ...given }: SampleArguments, { output, signal }: Context): Promise<void> {
  const bar = progressBar(output, "writing");
  try {
    const written = await writeSample(folder, { ...given, signal, onProgress: (progress) => bar.update(progress) });
    bar.stop();
    if (json) output.json({ ...written, shape: given.shape, seed: given.seed });
    else output.line(`${written.tensorCount} tensors, ${formatBytes(written.byteLength)}, in ${written.files.length} file(s) in ${folder}`);
  } finally {
    bar.stop();
  }
}
