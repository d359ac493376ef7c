import type { Command } from "commander";
import type { Checkpoint } from "../../checkpoint/checkpoint.js";
import { openCheckpoint } from "../../checkpoint/open.js";
import { formatBytes } from "../../units.js";
import type { Context } from "../context.js";
import { leftAside } from "../left-aside.js";
import { options } from "../options.js";

interface InspectOptions {
  readonly tensors?: true;
  readonly weights?: string;
  readonly json?: true;
}

export function addInspect(program: Command, context: Context): void {
  program
    .command("inspect")
    .description("Show what a checkpoint holds: shards, dtypes, parameters, bytes, metadata. Reads and validates the headers only.")
    .argument("<path>", "checkpoint")
    .option("--tensors", "list every tensor: dtype, shape, bytes, shard, file offset")
    .addOption(options.weights())
    .addOption(options.json())
    .addHelpText("after", "\nExamples:\n  mx inspect model.safetensors\n  mx inspect ./folder --tensors --json | jq '.tensors[].name'")
    .action((path: string, given: InspectOptions) => inspect(path, given, context));
}

async function inspect(given: string, { tensors, weights, json }: InspectOptions, { output, signal }: Context): Promise<void> {
  const checkpoint = await openCheckpoint(given, { signal, ...(weights === undefined ? {} : { weights }) });
  const dtypes = dtypesOf(checkpoint);
  const aside = await leftAside(checkpoint);
  if (json) {
    const { kind, indexFile, tensorCount, parameterCount, byteLength, metadata, shards } = checkpoint;
    const list = tensors ? { tensors: [...checkpoint.tensors.values()].map((tensor) => ({ ...tensor, shard: tensor.shard.name })) } : {};
    const { path } = checkpoint;
    output.json({ path, kind, indexFile, tensorCount, parameterCount, byteLength, metadata, dtypes, shards, aside, ...list });
    return;
  }
  output.pairs([
    ["path", checkpoint.path],
    ["index", checkpoint.indexFile],
    ["tensors", count(checkpoint.tensorCount)],
    ["parameters", count(checkpoint.parameterCount)],
    ["bytes", `${count(checkpoint.byteLength)} (${formatBytes(checkpoint.byteLength)})`],
    ...[...checkpoint.metadata].map(([key, value]) => [`metadata ${key}`, value.length > 200 ? `${value.slice(0, 199)}…` : value] as const),
  ]);
  output.line();
  output.table(
    [{ title: "dtype" }, { title: "tensors", right: true }, { title: "parameters", right: true }, { title: "bytes", right: true }],
    dtypes.map((row) => [row.dtype, count(row.tensorCount), count(row.parameterCount), formatBytes(row.byteLength)]),
  );
  output.line();
  output.table(
    [{ title: "shard" }, { title: "tensors", right: true }, { title: "file bytes", right: true }, { title: "data offset", right: true }],
    checkpoint.shards.map((shard) => [shard.name, count(shard.tensorCount), formatBytes(shard.byteLength), String(shard.dataOffset)]),
  );
  if (aside.length > 0) {
    output.line();
    output.table(
      [{ title: "left aside" }, { title: "why" }],
      aside.map(({ name, why }) => [name, why]),
    );
  }
  if (!tensors) return;
  output.line();
  output.table(
    [
      { title: "tensor" },
      { title: "dtype" },
      { title: "shape" },
      { title: "bytes", right: true },
      { title: "offset", right: true },
      { title: "shard" },
    ],
    [...checkpoint.tensors.values()].map(({ name, dtype, shape, byteLength, offset, shard }) => {
      return [name, dtype, `[${shape.join(", ")}]`, String(byteLength), String(offset), shard.name];
    }),
  );
}

interface DtypeSums {
  readonly dtype: string;
  tensorCount: number;
  parameterCount: number;
  byteLength: number;
}

/** Sums per dtype, the largest first. */
function dtypesOf(checkpoint: Checkpoint): DtypeSums[] {
  const rows = new Map<string, DtypeSums>();
  for (const { dtype, shape, byteLength } of checkpoint.tensors.values()) {
    const row = rows.get(dtype) ?? { dtype, tensorCount: 0, parameterCount: 0, byteLength: 0 };
    row.tensorCount += 1;
    row.parameterCount += shape.reduce((product, dim) => product * dim, 1);
    row.byteLength += byteLength;
    rows.set(dtype, row);
  }
  return [...rows.values()].sort((a, b) => b.byteLength - a.byteLength);
}

function count(value: number): string {
  return value.toLocaleString("en-US");
}
