import { randomFillSync } from "node:crypto";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { atFault, fakesEnv, type Ledger, readLedger } from "../support/fakes.js";
import { makeFolder, root, temporaryFolder } from "../support/folders.js";
import { runNode } from "../support/run-node.js";
import { planned, sweep } from "../support/sweep.js";
import { testAddon } from "../support/test-addon.js";

const MIB = 2 ** 20;
const fileBytes = 20 * MIB;

/**
 * A batch into memory of cuda:0 that is several windows long. Prints what was thrown where, what
 * was published, and whether every byte is right.
 */
const load = `${atFault}
import { VmmArena } from ${JSON.stringify(`${root}dist/arena/arena.js`)};
import { cudaBackend } from ${JSON.stringify(`${root}dist/arena/cuda-backend.js`)};
import { addon } from ${JSON.stringify(`${root}dist/native/load.js`)};
import { awaitNative } from ${JSON.stringify(`${root}dist/native/failure.js`)};
import { stagedDriver } from ${JSON.stringify(`${root}dist/transfer/staged/driver.js`)};
import { readFileSync, statSync } from "node:fs";
import { subscribe } from "node:diagnostics_channel";
const [path, text] = process.argv.slice(2);
const { abort, faults, awaitSettled, exit, pieces } = JSON.parse(text);
const told = { thrown: [], published: [], right: null, settled: false, busy: null, copied: 0 };
subscribe("modelexpress", ({ event, error }) => {
  if (event === "transfer.clean-up-failed" || event === "arena.release-failed") told.published.push([event, error.code]);
});
async function attempt(step, work) {
  try {
    return await work();
  } catch (error) {
    told.thrown.push([step, error.code ?? String(error), error.operation ?? null, error.status ?? null]);
  }
}
const { size, dev, ino, mtimeNs } = statSync(path, { bigint: true });
const content = readFileSync(path);
const arena = await attempt("arena", () => new VmmArena({ backend: cudaBackend({ device: 0 }), totalBytes: 2 ** 26 }));
const base = arena && (await attempt("malloc", () => arena.malloc(content.length)));
// What was given up keeps no process alive.
const waiting = awaitSettled ? setInterval(() => {}, 2 ** 30) : undefined;
if (base !== undefined) {
  if (faults !== null) addon().planFaults(Float64Array.from(faults));
  const batch = {
    arena,
    files: {
      paths: [path], size: Float64Array.of(content.length),
      identity: BigUint64Array.of(dev, ino, mtimeNs, 0n, 0n, 0n), dioOffsetAlign: Uint32Array.of(4096), dioMemAlign: Uint32Array.of(4096),
    },
    pieces: {
      file: new Uint32Array(pieces.length), offset: Float64Array.from(pieces, ([offset]) => offset),
      length: Float64Array.from(pieces, ([, length]) => length), address: BigUint64Array.from(pieces, ([, , at]) => base + BigInt(at)),
    },
    threads: 2, maxChunkBytes: 2 ** 22,
  };
  const moving = await attempt("submit", () => stagedDriver.submit(batch));
  if (moving !== undefined) {
    moving.settled.then(() => (told.settled = true));
    if (abort === "at once") moving.abort();
    else if (abort === "at the fault") atFault(() => moving.abort());
    else if (abort !== null) setTimeout(() => moving.abort(), abort);
    if (exit !== null) setTimeout(() => process.exit(exit), 30);
    const summary = await attempt("load", () => moving.done);
    told.copied = moving.progressBytes();
    if (summary === undefined) {
      try {
        arena.free(base);
        told.busy = false;
      } catch (error) {
        told.busy = error.code;
      }
    }
    if (awaitSettled) await moving.settled;
    if (summary !== undefined) {
      told.right = await attempt("copy", async () => {
        for (const [offset, length, at] of pieces) {
          if (!content.subarray(offset, offset + length).equals(await awaitNative(() => arena.native.copyToHost(base + BigInt(at), length)))) return false;
        }
        return true;
      }) ?? null;
    }
  }
}
if (arena !== undefined && awaitSettled) await attempt("close", () => arena[Symbol.asyncDispose]());
clearInterval(waiting);
console.log(JSON.stringify(told));
`;

interface Told {
  readonly thrown: readonly (readonly [step: string, code: string, operation: string | null, status: string | null])[];
  readonly published: readonly (readonly [string, string])[];
  readonly right: boolean | null;
  readonly settled: boolean;
  /** What freeing the memory was answered right after a failure. */
  readonly busy: string | false | null;
  readonly copied: number;
}

interface Run {
  /** A number is milliseconds. */
  readonly abort?: "at once" | "at the fault" | number;
  /** Planned faults of the reads. */
  readonly faults?: readonly number[];
  readonly awaitSettled?: boolean;
  readonly exit?: number;
}

const folder = makeFolder();
const file = join(folder, "shard");
/** `[offset, length, place in the allocation]`; the second is longer than a slot. */
const pieces = [
  [3, 100, 4096],
  [103, 9 * MIB, 8 * MIB],
  [17 * MIB + 1, MIB, 5 * MIB + 9],
  [18 * MIB + 5001, MIB, 6 * MIB + 9],
] as const;

beforeAll(() => writeFileSync(file, randomFillSync(Buffer.allocUnsafe(fileBytes))));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

async function run(plan: string, { abort, faults, awaitSettled = true, exit }: Run = {}): Promise<{ told: Told; ledger: Ledger }> {
  const ledger = join(temporaryFolder(), "ledger");
  const text = JSON.stringify({ abort: abort ?? null, faults: faults ?? null, awaitSettled, exit: exit ?? null, pieces });
  const { code, signal, stdout, stderr } = await runNode(load, {
    env: { ...fakesEnv({ plan, ledger }), MX_NATIVE_ADDON: testAddon },
    args: [file, text],
  });
  expect([plan, code, signal, stderr]).toEqual([plan, exit ?? 0, null, ""]);
  return { told: (exit === undefined ? JSON.parse(stdout) : null) as Told, ledger: readLedger(ledger) };
}

/** What a release that fails leaves open. */
const lost: Readonly<Record<string, string>> = {
  cuEventDestroy_v2: "event",
  cuStreamDestroy_v2: "stream",
  cuMemHostUnregister: "host-registration",
};

/**
 * Copies end before what they need goes; events and the stream go before the memory they were
 * recorded for.
 */
function requireOrder({ events, faults }: Ledger): void {
  const open: Record<string, number> = { copy: 0, event: 0, stream: 0, "host-registration": 0 };
  const before: Readonly<Record<string, readonly string[]>> = {
    event: ["copy"],
    stream: ["copy", "event"],
    "host-registration": ["copy", "event", "stream"],
    mapping: ["copy", "event", "stream", "host-registration"],
  };
  const left = faults.map(({ name }) => lost[name]);
  // When the context goes, what is left goes with it.
  const last = events.findLastIndex(({ kind, what }) => kind === "mapping" && what === "closed");
  for (const { kind, what } of events.slice(0, last + 1)) {
    if (what === "closed") {
      for (const other of before[kind] ?? []) expect([kind, other, open[other]]).toEqual([kind, other, left.includes(other) ? 1 : 0]);
    }
    if (kind in open) open[kind] = (open[kind] ?? 0) + (what === "opened" ? 1 : -1);
  }
}

describe("a batch through pinned buffers", () => {
  it("leaves nothing, and gives back in reverse order", async () => {
    const { told, ledger } = await run("");
    expect(told).toEqual({ thrown: [], published: [], right: true, settled: true, busy: null, copied: 11 * MIB + 100 });
    expect([ledger.open, ledger.killed, ledger.ended]).toEqual([[], undefined, true]);
    expect(ledger.peak["host-registration"]).toEqual({ things: 3, bytes: 12 * MIB });
    expect(ledger.counts).toMatchObject({ cuStreamCreate: 1, cuStreamDestroy_v2: 1, cuEventCreate: 3, cuEventDestroy_v2: 3 });
    expect(ledger.counts.cuMemHostUnregister).toBe(3);
    requireOrder(ledger);
    // All from one thread, which is not that of JavaScript.
    const threads = new Set(ledger.calls.filter(({ name }) => name === "cuMemcpyHtoDAsync_v2").map(({ thread }) => thread));
    expect(threads.size).toBe(1);
    expect(threads.has(ledger.calls.find(({ name }) => name === "cuInit")?.thread ?? 0)).toBe(false);
  });

  it("survives the failure of any call of any function", { timeout: 240_000 }, async () => {
    const { ledger: clean } = await run("");
    expect(planned(clean.counts).length).toBeGreaterThan(60);
    await sweep(clean.counts, async (plan) => {
      const { told, ledger } = await run(plan);
      requireOrder(ledger);
      expect([plan, told.settled || told.thrown.some(([step]) => ["arena", "malloc"].includes(step))]).toEqual([plan, true]);
      if (told.thrown.length === 0) expect([plan, told.right]).toEqual([plan, true]);
      return { thrown: told.thrown.map(([, code]) => code), published: told.published.map(([, code]) => code), ledger };
    });
  });

  it.each([
    ["cuMemHostRegister_v2#1", "ERR_CUDA_PIN", "cuMemHostRegister"],
    ["cuMemHostRegister_v2#3", "ERR_CUDA_PIN", "cuMemHostRegister"],
    ["cuStreamCreate#1", "ERR_CUDA_CALL", "cuStreamCreate"],
    ["cuEventCreate#2", "ERR_CUDA_CALL", "cuEventCreate"],
    ["cuMemcpyHtoDAsync_v2#3", "ERR_CUDA_COPY", "cuMemcpyHtoDAsync"],
    ["cuEventRecord#1", "ERR_CUDA_COPY", "cuEventRecord"],
    ["cuEventSynchronize#1", "ERR_CUDA_COPY", "cuEventSynchronize"],
    ["cuEventDestroy_v2#1", "ERR_CUDA_RELEASE", "cuEventDestroy"],
    ["cuStreamDestroy_v2#1", "ERR_CUDA_RELEASE", "cuStreamDestroy"],
    ["cuMemHostUnregister#1", "ERR_CUDA_RELEASE", "cuMemHostUnregister"],
  ])("says what failed, with copies in flight: %s", async (call, code, operation) => {
    const { told, ledger } = await run(`async-ms=20;${call}=CUDA_ERROR_OUT_OF_MEMORY`);
    expect([told.thrown, told.settled]).toEqual([[["load", code, operation, "CUDA_ERROR_OUT_OF_MEMORY"]], true]);
    expect(ledger.killed).toBeUndefined();
    requireOrder(ledger);
  });

  it("waits for copies in flight when a read fails", async () => {
    // Only the last window has three reads: the second stalls, the third fails with EIO, and the
    // copies of the other windows are slow.
    const { told, ledger } = await run("async-ms=300", { faults: [2, 2, 150, 0, 3, 5] });
    expect(told.thrown.map(([step, code]) => [step, code])).toEqual([["load", "ERR_TRANSFER_READ"]]);
    expect(ledger.peak.copy?.things).toBeGreaterThan(0);
    expect([told.settled, ledger.open, ledger.killed]).toEqual([true, [], undefined]);
    requireOrder(ledger);
  });
});

describe("an abort", () => {
  it.each(["at once", 5, 60, 120] as const)("is told at once, and settles when reads and copies are over (%s)", async (abort) => {
    const { told, ledger } = await run("async-ms=40", { abort });
    expect(told.thrown).toEqual([["load", "ERR_TRANSFER_ABORTED", null, null]]);
    expect([told.busy, told.settled, ledger.open, ledger.killed]).toEqual(["ERR_ARENA_BUSY", true, [], undefined]);
    requireOrder(ledger);
  });

  it.each(["cuMemcpyHtoDAsync_v2#1", "cuEventSynchronize#2", "cuMemHostRegister_v2#1", "cuStreamCreate#1", "cuMemHostUnregister#1"])(
    "ends the wait for a call that never returns, and the process can end: %s",
    async (call) => {
      const { told, ledger } = await run(`${call}=hang`, { abort: "at the fault", awaitSettled: false });
      expect(told.thrown).toEqual([["load", "ERR_TRANSFER_ABORTED", null, null]]);
      expect([told.settled, told.busy, ledger.killed]).toEqual([false, "ERR_ARENA_BUSY", undefined]);
      expect(ledger.faults.length).toBe(1);
    },
  );

  it("waits for a read that is stuck, while nothing is given back", async () => {
    // Every read stalls for 400 ms.
    const { told, ledger } = await run("", { abort: 50, faults: [2, 0, 400] });
    expect(told.thrown).toEqual([["load", "ERR_TRANSFER_ABORTED", null, null]]);
    expect([told.busy, told.settled, ledger.open]).toEqual(["ERR_ARENA_BUSY", true, []]);
    expect(ledger.counts.cuMemcpyHtoDAsync_v2 ?? 0).toBe(0);
  });
});

describe("a driver that does not say whether copies are over", () => {
  it("is asked twice", async () => {
    const { told, ledger } = await run("async-ms=20;cuMemcpyHtoDAsync_v2#3=CUDA_ERROR_UNKNOWN;cuStreamSynchronize#1=CUDA_ERROR_UNKNOWN");
    expect(told.thrown).toEqual([["load", "ERR_CUDA_COPY", "cuMemcpyHtoDAsync", "CUDA_ERROR_UNKNOWN"]]);
    expect([told.settled, ledger.open, ledger.killed, ledger.faults.length]).toEqual([true, [], undefined, 2]);
  });

  it("keeps both memories for good", async () => {
    const plan = "async-ms=20;cuMemcpyHtoDAsync_v2#3=CUDA_ERROR_UNKNOWN;cuStreamSynchronize#*=CUDA_ERROR_UNKNOWN";
    const { told, ledger } = await run(plan, { awaitSettled: false });
    expect(told.thrown).toEqual([["load", "ERR_CUDA_COPY", "cuMemcpyHtoDAsync", "CUDA_ERROR_UNKNOWN"]]);
    expect([told.settled, told.busy, ledger.killed]).toEqual([false, "ERR_ARENA_BUSY", undefined]);
    expect(ledger.counts.cuMemHostUnregister ?? 0).toBe(0);
    expect(ledger.open.map(({ kind }) => kind)).toContain("host-registration");
  });
});

it("a process can exit in the middle of a batch", async () => {
  const { ledger } = await run("async-ms=100", { exit: 3 });
  expect([ledger.killed, ledger.ended]).toEqual([undefined, true]);
});

it.each([5, 40, 150])("a worker can end in the middle of a batch (after %i ms)", async (afterMs) => {
  const script = join(temporaryFolder(), "load.mjs");
  writeFileSync(script, load);
  const main = `
    import { Worker } from "node:worker_threads";
    const worker = new Worker(${JSON.stringify(script)}, { argv: process.argv.slice(2), stdout: true });
    await new Promise((resolve) => worker.once("online", () => setTimeout(resolve, ${afterMs} + 50)));
    await worker.terminate();
    await new Promise((resolve) => setTimeout(resolve, 500));`;
  const ledger = join(temporaryFolder(), "ledger");
  const text = JSON.stringify({ abort: null, faults: null, awaitSettled: true, exit: null, pieces });
  const { code, signal, stderr } = await runNode(main, { env: fakesEnv({ plan: "async-ms=60", ledger }), args: [file, text] });
  expect([code, signal, stderr]).toEqual([0, null, ""]);
  const { open, killed } = readLedger(ledger);
  expect([open, killed]).toEqual([[], undefined]);
});

it("several batches can run at once, in memory next to one another", async () => {
  const script = `
    import { VmmArena } from ${JSON.stringify(`${root}dist/arena/arena.js`)};
    import { cudaBackend } from ${JSON.stringify(`${root}dist/arena/cuda-backend.js`)};
    import { stagedDriver } from ${JSON.stringify(`${root}dist/transfer/staged/driver.js`)};
    import { readFileSync, statSync } from "node:fs";
    const path = process.argv[2];
    const { size, dev, ino, mtimeNs } = statSync(path, { bigint: true });
    const files = {
      paths: [path], size: Float64Array.of(Number(size)),
      identity: BigUint64Array.of(dev, ino, mtimeNs, 0n, 0n, 0n), dioOffsetAlign: Uint32Array.of(4096), dioMemAlign: Uint32Array.of(4096),
    };
    const arena = new VmmArena({ backend: cudaBackend({ device: 0 }), totalBytes: 2 ** 26 });
    const content = readFileSync(path);
    const part = content.length / 4;
    const base = arena.malloc(content.length);
    const column = (value) => ({ file: new Uint32Array(1), offset: Float64Array.of(value), length: Float64Array.of(part), address: BigUint64Array.of(base + BigInt(value)) });
    const moving = [0, 1, 2, 3].map((at) => stagedDriver.submit({ arena, files, pieces: column(at * part), threads: 1, maxChunkBytes: 2 ** 20 }));
    moving[2].abort();
    const outcomes = await Promise.allSettled(moving.map(({ done }) => done));
    const alive = setInterval(() => {}, 1000);
    await Promise.all(moving.map(({ settled }) => settled));
    clearInterval(alive);
    const found = Buffer.from(await arena.native.copyToHost(base, content.length));
    arena.close();
    console.log(JSON.stringify([outcomes.map(({ reason }) => reason?.code ?? null), [0, 1, 3].map((at) => content.subarray(at * part, (at + 1) * part).equals(found.subarray(at * part, (at + 1) * part)))]));`;
  const ledger = join(temporaryFolder(), "ledger");
  const { code, signal, stdout, stderr } = await runNode(script, { env: fakesEnv({ plan: "async-ms=10", ledger }), args: [file] });
  expect([code, signal, stderr]).toEqual([0, null, ""]);
  expect(JSON.parse(stdout)).toEqual([
    [null, null, "ERR_TRANSFER_ABORTED", null],
    [true, true, true],
  ]);
  const { open, killed } = readLedger(ledger);
  expect([open, killed]).toEqual([[], undefined]);
});
