import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { SampleOptions } from "../src/sample/write-sample.js";
import { writeManyShards } from "./many-shards.js";
import { checkpointFolder, importBuilt, programFolder } from "./paths.js";

const MiB = 2 ** 20;

/** What the rows load. A sample's bytes are noise, made from its seed. */
export const checkpoints = {
  llama: { title: "llama, 2 GiB in 4 shards", sample: { shape: "llama", bytes: 2048 * MiB, shards: 4, seed: 1 } },
  "few-large": { title: "8 large tensors, 1 GiB in 1 file", sample: { shape: "few-large", bytes: 1024 * MiB, seed: 1 } },
  "many-small": { title: "3,050 small tensors, 256 MiB in 1 file", sample: { shape: "many-small", bytes: 256 * MiB, seed: 1 } },
  "few-small": { title: "8 tensors, 256 MiB in 1 file", sample: { shape: "few-large", bytes: 256 * MiB, seed: 1 } },
  "many-shards": { title: "92,000 tensors in 163 shards", shards: 163, tensors: 92_000 },
} as const satisfies Record<string, { title: string } & ({ sample: SampleOptions } | { shards: number; tensors: number })>;

export type CheckpointId = keyof typeof checkpoints;

export interface PreparedCheckpoint {
  readonly path: string;
  readonly files: readonly string[];
  /** Bytes of the files together. */
  readonly fileBytes: number;
}

/**
 * Writes a checkpoint unless it is there already, made by the same recipe, and drops it from the
 * page cache: pages that a write left there come in pieces of the write's size, and small pieces
 * copy up to a fifth slower than the large ones that reading ahead makes. `scale` shrinks samples,
 * for trying the bench itself out.
 */
export async function prepareCheckpoint(id: CheckpointId, scale: number): Promise<PreparedCheckpoint> {
  const path = join(checkpointFolder, scale === 1 ? id : `${id}-${scale}`);
  const recipe = checkpoints[id];
  const stamp = join(path, "recipe.json");
  const wanted = JSON.stringify(recipe);
  if (!existsSync(stamp) || readFileSync(stamp, "utf8") !== wanted) {
    rmSync(path, { recursive: true, force: true });
    if ("sample" in recipe) {
      const { writeSample } = await importBuilt<typeof import("../src/sample/write-sample.js")>("sample/write-sample.js");
      await writeSample(path, { ...recipe.sample, bytes: recipe.sample.bytes * scale });
    } else {
      await writeManyShards(path, recipe.shards, recipe.tensors);
    }
    writeFileSync(stamp, wanted);
  }
  const files = readdirSync(path)
    .filter((name) => name.endsWith(".safetensors"))
    .sort()
    .map((name) => join(path, name));
  execFileSync(join(programFolder, "machine"), ["prepare", "cold", "0", ...files]);
  return { path, files, fileBytes: files.reduce((sum, file) => sum + statSync(file).size, 0) };
}
