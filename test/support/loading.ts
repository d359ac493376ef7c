import { spawnSync } from "node:child_process";
import { closeSync, fsyncSync, openSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import type { DriverName } from "../../src/envs.js";
import { ModelExpressError } from "../../src/errors.js";
import { loadCheckpoint } from "../../src/loader/load-checkpoint.js";
import type { LoadedModel } from "../../src/loader/loaded-model.js";
import type { LoadOptions } from "../../src/loader/options.js";
import { addon } from "../../src/native/load.js";
import { temporaryFolder } from "./folders.js";
import { buildSafetensors, type SafetensorsOptions, type TensorSpec, writeIndex } from "./safetensors.js";

export type Tensors = Readonly<Record<string, TensorSpec>>;

/** A file of these tensors in a folder that goes away with the test. */
export function writeCheckpoint(tensors: Tensors, options?: SafetensorsOptions): string {
  const file = join(temporaryFolder(), "model.safetensors");
  writeFileSync(file, buildSafetensors(tensors, options));
  return file;
}

/** A folder of shards with an index. Also goes away with the test. */
export function writeShards(shards: readonly Tensors[], options?: SafetensorsOptions): string {
  const folder = temporaryFolder();
  const weightMap: Record<string, string> = {};
  for (const [index, tensors] of shards.entries()) {
    const name = `model-${index + 1}.safetensors`;
    writeFileSync(join(folder, name), buildSafetensors(tensors, options));
    for (const tensor of Object.keys(tensors)) weightMap[tensor] = name;
  }
  writeIndex(join(folder, "model.safetensors.index.json"), weightMap);
  return folder;
}

/** Drops files from the page cache; their dirty pages are written first. */
export function evict(...files: readonly string[]): void {
  for (const file of files) {
    const descriptor = openSync(file, "r");
    fsyncSync(descriptor);
    closeSync(descriptor);
    const { status, stderr } = spawnSync("dd", [`if=${file}`, "iflag=nocache", "count=0", "status=none"], { encoding: "utf8" });
    if (status !== 0) throw new Error(stderr);
  }
}

/** Errno name with which io_uring is refused here; empty where it works. */
export function ioUringRefusal(): string {
  return refusal;
}

const refusal = (await addon().ioSupport(process.execPath)).ioUring ?? "";

/** The copying drivers that this machine can run. */
export const copyingDrivers: readonly DriverName[] = ioUringRefusal() === "" ? ["pread", "io_uring", "auto"] : ["pread", "auto"];

/**
 * A planned fault of the engine: the nth read (0: every one) fails with an errno, comes short, or
 * stalls.
 */
export type PlannedFault = { readonly nth: number } & (
  | { readonly errno: number }
  | { readonly shortBytes: number }
  | { readonly stallMs: number }
);

/** Every transfer, until the end of the test or the next call, has these faults. */
export function planFaults(...faults: readonly PlannedFault[]): void {
  plan(faults);
  onTestFinished(() => plan([]));
}

function plan(faults: readonly PlannedFault[]): void {
  const column = faults.flatMap((fault) => {
    if ("errno" in fault) return [0, fault.nth, fault.errno];
    return "shortBytes" in fault ? [1, fault.nth, fault.shortBytes] : [2, fault.nth, fault.stallMs];
  });
  (addon() as TestAddon).planFaults(Float64Array.from(column));
}

/** What the addon of test builds has besides. */
export type TestAddon = ReturnType<typeof addon> & {
  /** `[kind, nth, value, ...]`: see native/node/src/faults.rs. */
  planFaults(column: Float64Array): void;
};

/** A load in flight, and the moment that its first bytes were in place. */
export interface Begun {
  readonly load: Promise<LoadedModel>;
  readonly begun: Promise<void>;
}

/** Starts a load; with the fault `{ nth: 2, stallMs }` it is stuck in a read once it has begun. */
export function beginLoad(path: string, options: LoadOptions): Begun {
  let resolve = () => {};
  const begun = new Promise<void>((onResolve) => {
    resolve = onResolve;
  });
  const load = loadCheckpoint(path, { ...options, onProgress: ({ bytes }) => (bytes > 0 ? resolve() : undefined) });
  load.catch(() => {});
  return { load, begun };
}

/** What a promise rejects with; resolving is an error. */
export async function failureOf(promise: Promise<unknown>): Promise<unknown> {
  try {
    await promise;
  } catch (reason) {
    return reason;
  }
  throw new Error("it did not fail");
}

/** The error of this package that a promise rejects with, or that a call throws. */
export async function errorFrom(action: Promise<unknown> | (() => unknown)): Promise<ModelExpressError> {
  const reason = await failureOf(typeof action === "function" ? (async () => action())() : action);
  if (reason instanceof ModelExpressError) return reason;
  throw reason;
}

export function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
