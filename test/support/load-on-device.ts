import { join } from "node:path";
import { expect } from "vitest";
import type { LoadOptions } from "../../src/loader/options.js";
import type { LoadReport } from "../../src/loader/report.js";
import { atFault, fakesEnv, type Ledger, readLedger } from "./fakes.js";
import { temporaryFolder } from "./folders.js";
import { runNode } from "./run-node.js";

/**
 * Loads in a child over the stand-ins and tells what came of it. Files of the kernel can be given
 * other texts: Node's own reading of them is replaced before the package is loaded.
 */
const script = `${atFault}
import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { createHash } from "node:crypto";
import { subscribe } from "node:diagnostics_channel";
const [path, text] = process.argv.slice(2);
const { load, kernelFiles, abortAtFault, awaitSettled, arena: arenaDevice, copies, stream } = JSON.parse(text);
const readFileSync = fs.readFileSync;
fs.readFileSync = (file, ...rest) => {
  const texts = kernelFiles[file];
  return texts === undefined ? readFileSync(file, ...rest) : texts.length > 1 ? texts.shift() : texts[0];
};
syncBuiltinESMExports();
const { cudaBackend, hostBackend, loadCheckpoint, streamCheckpoint, VmmArena } = await import("modelexpress-client");
const told = { thrown: [], published: [], digests: {}, device: null, report: null, turns: 0, settled: false, rejectedEarly: false, arena: null, gds: [] };
subscribe("modelexpress", ({ event, error, ...facts }) => {
  if (event === "gds.agent-created" || event === "option.clamped") told.gds.push({ event, ...facts });
  if (event === "transfer.clean-up-failed" || event === "arena.release-failed") told.published.push([event, error.code]);
});
async function attempt(step, work) {
  try {
    return await work();
  } catch (error) {
    const { code, message, operation, plugin, file, tensor } = error;
    told.thrown.push({ step, code: code ?? String(error), message, operation, plugin, file, tensor });
    if (!awaitSettled) return;
    let over = false;
    const settled = Promise.resolve(error.settled).then(() => (over = true));
    await new Promise(setImmediate);
    told.rejectedEarly = !over;
    told.settled = await settled;
  }
}
setInterval(() => told.turns++, 20).unref();
const hex = (bytes) => createHash("sha256").update(bytes).digest("hex");
const arena = arenaDevice === null ? undefined : await attempt("arena", () => new VmmArena({ backend: arenaDevice === "host" ? hostBackend() : cudaBackend({ device: arenaDevice }), totalBytes: 2 ** 30 }));
const aborting = new AbortController();
const options = { ...load, ...(arena === undefined ? {} : { arena }), ...(abortAtFault ? { signal: aborting.signal } : {}) };
if (abortAtFault) atFault(() => aborting.abort());
if (stream) {
  await attempt("stream", async () => {
    for await (const tensor of streamCheckpoint(path, options)) {
      told.device = tensor.device;
      const copy = tensor.copyToHost();
      told.digests[tensor.name] = copies === "late" ? copy : hex(await copy);
    }
  });
  for (const name in told.digests) if (typeof told.digests[name] !== "string") told.digests[name] = hex(await told.digests[name]);
} else {
  const model = await attempt("load", () => loadCheckpoint(path, options));
  if (model !== undefined) {
    told.report = model.report;
    const first = model.tensors.values().next().value;
    if (first !== undefined) {
      told.device = first.device;
      if (first.device !== "host") for (const view of ["bytes", "typed"]) await attempt(view, () => first[view]());
    }
    const late = copies === "late" ? [...model.tensors.values()].map((tensor) => [tensor.name, tensor.copyToHost()]) : [];
    if (copies === true) {
      await attempt("copy", async () => {
        for (const tensor of model.tensors.values()) told.digests[tensor.name] = hex(await tensor.copyToHost());
      });
    }
    const digests = late.length > 0 ? undefined : await attempt("digest", () => model.digest());
    for (const [name, digest] of digests ?? []) {
      if (told.digests[name] !== undefined && told.digests[name] !== digest) told.thrown.push({ step: "compare", code: name });
      told.digests[name] = digest;
    }
    await attempt("close", () => model.close());
    for (const [name, copy] of late) told.digests[name] = hex(await copy);
    if (first !== undefined && copies === "late") await attempt("copy after close", () => first.copyToHost());
  }
}
if (arena !== undefined) {
  told.arena = [arena.liveAllocationCount, arena.usedBytes > 0];
  await attempt("close arena", () => arena[Symbol.asyncDispose]());
}
console.log(JSON.stringify(told));`;

export interface DeviceRun {
  /** Settings and faults for the stand-ins. */
  readonly plan?: string;
  /** The real NIXL; without it none is found. */
  readonly nixl?: string;
  /** Texts of the kernel's files, each for the reads of it in order; the last stays. */
  readonly kernelFiles?: Readonly<Record<string, readonly string[]>>;
  /** Whether the load is aborted once the planned fault has taken effect. */
  readonly abortAtFault?: boolean;
  /** Whether to wait for the end of what is in flight after an error. Default true. */
  readonly awaitSettled?: boolean;
  /** Device of an arena of the caller's. */
  readonly arena?: string;
  /**
   * Whether every tensor is copied to the host as well. `late`: the model is closed, or the stream
   * goes on, before its copies have ended.
   */
  readonly copies?: boolean | "late";
  readonly stream?: boolean;
  readonly timeoutMs?: number;
  readonly env?: Readonly<Record<string, string>>;
}

export interface DeviceTold {
  readonly thrown: readonly {
    readonly step: string;
    readonly code: string;
    readonly message?: string;
    readonly operation?: string;
    readonly plugin?: string;
    readonly file?: string;
  }[];
  readonly published: readonly (readonly [string, string])[];
  /** Events of agents that read, and of options that were clamped. */
  readonly gds: readonly Readonly<Record<string, unknown>>[];
  /** SHA-256 of each tensor as it lies on the device. */
  readonly digests: Readonly<Record<string, string>>;
  readonly device: string | null;
  readonly report: LoadReport | null;
  /** Turns of the event loop, at most one in 20 ms. */
  readonly turns: number;
  readonly settled: boolean;
  /** Whether work was still in flight when the load was rejected. */
  readonly rejectedEarly: boolean;
  /** Allocations that are left in the caller's arena, and whether it was used. */
  readonly arena: readonly [number, boolean] | null;
}

/** What loads to a device throw when a view is asked for; every child tries that. */
const refusedViews = ["ERR_TENSOR_ON_DEVICE", "ERR_TENSOR_ON_DEVICE"];

/** Loads in a child, which must end by itself with code 0. */
export async function loadOnDevice(path: string, load: LoadOptions & { maxBytes?: number }, run: DeviceRun = {}) {
  const {
    plan = "",
    nixl,
    kernelFiles = {},
    abortAtFault = false,
    awaitSettled = true,
    arena = null,
    copies = false,
    stream = false,
  } = run;
  const file = join(temporaryFolder(), "ledger");
  const env = {
    ...fakesEnv({ plan, ledger: file, ...(nixl === undefined ? {} : { nixl }) }),
    NIXL_LOG_LEVEL: "FATAL",
    ...(nixl === undefined ? { MX_NIXL_LIBRARY: "/nowhere/libnixl_capi.so" } : {}),
    ...run.env,
  };
  const told = JSON.stringify({ load, kernelFiles, abortAtFault, awaitSettled, arena, copies, stream });
  const { code, signal, stdout, stderr } = await runNode(script, { env, args: [path, told], timeoutMs: run.timeoutMs ?? 20_000 });
  expect([plan, code, signal], stderr).toEqual([plan, 0, null]);
  const outcome = JSON.parse(stdout) as DeviceTold;
  const views = outcome.thrown.filter(({ step }) => step === "bytes" || step === "typed").map(({ code }) => code);
  if (outcome.device !== null && outcome.device !== "host" && !stream) expect(views).toEqual(refusedViews);
  const thrown = outcome.thrown.filter(({ step }) => step !== "bytes" && step !== "typed");
  return { told: { ...outcome, thrown }, ledger: readLedger(file) } satisfies { told: DeviceTold; ledger: Ledger };
}
