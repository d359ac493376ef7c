import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";

const elements = 64;
const elementBytes = 2;
const expertCount = 128;
const parts = [
  "gate_proj.weight",
  "gate_proj.weight_scale_inv",
  "up_proj.weight",
  "up_proj.weight_scale_inv",
  "down_proj.weight",
  "down_proj.weight_scale_inv",
];

/**
 * Writes the names of a large mixture of experts over many shards, each tensor tiny: what an
 * opening costs, without the bytes.
 */
export async function writeManyShards(folder: string, shardCount: number, tensorCount: number): Promise<void> {
  await mkdir(folder, { recursive: true });
  const weightMap: Record<string, string> = {};
  for (let shard = 0; shard < shardCount; shard++) {
    const name = `model-${pad(shard + 1)}-of-${pad(shardCount)}.safetensors`;
    const [begin, end] = [share(shard), share(shard + 1)];
    const header: Record<string, unknown> = { __metadata__: { format: "pt" } };
    for (let row = begin; row < end; row++) {
      const at = (row - begin) * elements * elementBytes;
      header[tensorName(row)] = { dtype: "BF16", shape: [elements / 8, 8], data_offsets: [at, at + elements * elementBytes] };
      weightMap[tensorName(row)] = name;
    }
    await writeFile(join(folder, name), fileOf(header, (end - begin) * elements * elementBytes, shard));
  }
  const totalBytes = tensorCount * elements * elementBytes;
  await writeFile(
    join(folder, "model.safetensors.index.json"),
    JSON.stringify({ metadata: { total_size: totalBytes }, weight_map: weightMap }),
  );

  function share(shard: number): number {
    return Math.floor((tensorCount * shard) / shardCount);
  }
}

function tensorName(row: number): string {
  const part = parts[row % parts.length];
  const expert = Math.floor(row / parts.length);
  return `model.layers.${Math.floor(expert / expertCount)}.mlp.experts.${expert % expertCount}.${part}`;
}

function fileOf(header: object, dataBytes: number, seed: number): Buffer {
  const text = JSON.stringify(header);
  const json = Buffer.from(text + " ".repeat(-text.length & 7));
  const file = Buffer.alloc(8 + json.length + dataBytes);
  file.writeBigUInt64LE(BigInt(json.length));
  json.copy(file, 8);
  for (let i = 0; i < dataBytes; i++) file[8 + json.length + i] = (i * 31 + seed * 17 + (i >> 8)) & 255;
  return file;
}

function pad(value: number): string {
  return String(value).padStart(5, "0");
}
