import { afterEach, describe, expect, it, vi } from "vitest";
import { VmmArena } from "../../src/arena/arena.js";
import { hostBackend } from "../../src/arena/host-backend.js";
import { keptPageBytes, releaseKeptPages } from "../../src/arena/kept-pages.js";
import { loadCheckpoint } from "../../src/loader/load-checkpoint.js";
import type { LoadOptions } from "../../src/loader/options.js";
import { streamCheckpoint } from "../../src/loader/stream-checkpoint.js";
import { errorFrom, planFaults, writeCheckpoint } from "../support/loading.js";
import { runNode } from "../support/run-node.js";

const MIB = 2 ** 20;
const keepPages = { maxBytes: 64 * MIB };

/** A file of one tensor `t` of so many bytes, all of this value. */
function filled(bytes: number, value: number): string {
  return writeCheckpoint({ t: { dtype: "U8", shape: [bytes], bytes: Buffer.alloc(bytes, value) } });
}

/** The values that the tensor's bytes have. */
function valuesOf(model: { readonly tensors: ReadonlyMap<string, { bytes(): Uint8Array }> }): number[] {
  return [...new Set(model.tensors.get("t")?.bytes())];
}

async function loadAndClose(path: string, options: LoadOptions = {}): Promise<number> {
  await using model = await loadCheckpoint(path, { keepPages, ...options });
  return model.report.memory.reusedBytes;
}

afterEach(async () => {
  await releaseKeptPages();
  expect(keptPageBytes()).toBe(0);
});

describe("pages that are kept", () => {
  it("are none unless asked", async () => {
    await using model = await loadCheckpoint(filled(4 * MIB, 1));
    await model.close();
    expect([keptPageBytes(), model.report.memory.reusedBytes]).toEqual([0, 0]);
  });

  it("go to the next load that asks, whose bytes are its own", async () => {
    expect(await loadAndClose(filled(8 * MIB + 100, 1))).toBe(0);
    expect(keptPageBytes()).toBe(8 * MIB);
    await using plain = await loadCheckpoint(filled(4 * MIB, 2));
    expect([plain.report.memory.reusedBytes, keptPageBytes()]).toEqual([0, 8 * MIB]);
    await using smaller = await loadCheckpoint(filled(6 * MIB, 3), { keepPages });
    await using larger = await loadCheckpoint(filled(6 * MIB, 4), { keepPages });
    expect([smaller, larger].map(({ report }) => report.memory.reusedBytes)).toEqual([6 * MIB, 2 * MIB]);
    expect([plain, smaller, larger].map(valuesOf)).toEqual([[2], [3], [4]]);
    await smaller.close();
    await larger.close();
    expect(keptPageBytes()).toBe(12 * MIB);
  });

  it("go to one of several loads at one time", async () => {
    await loadAndClose(filled(8 * MIB, 1));
    const models = await Promise.all([5, 6, 7].map((value) => loadCheckpoint(filled(4 * MIB, value), { keepPages })));
    expect(models.reduce((sum, { report }) => sum + report.memory.reusedBytes, 0)).toBe(8 * MIB);
    expect(models.map(valuesOf)).toEqual([[5], [6], [7]]);
    await Promise.all(models.map((model) => model.close()));
  });

  it("are those of bounded streams too, once they have ended", async () => {
    const path = writeCheckpoint(Object.fromEntries([1, 2, 3, 4].map((at) => [`t${at}`, { dtype: "U8", shape: [2 * MIB] }] as const)));
    const options = { keepPages, maxBytes: 4 * MIB };
    for await (const _ of streamCheckpoint(path, options)) break;
    expect(keptPageBytes()).toBe(0);
    for await (const _ of streamCheckpoint(path, options));
    const kept = keptPageBytes();
    expect(kept).toBeGreaterThanOrEqual(4 * MIB);
    for await (const _ of streamCheckpoint(path, options)) expect(keptPageBytes()).toBe(0);
    expect(keptPageBytes()).toBe(kept);
  });

  it("stay within the limit, the youngest first", async () => {
    await loadAndClose(filled(6 * MIB, 1), { keepPages: { maxBytes: 8 * MIB } });
    await loadAndClose(filled(2 * MIB, 2), { keepPages: { maxBytes: 4 * MIB } });
    expect(keptPageBytes()).toBe(4 * MIB);
    await using large = await loadCheckpoint(filled(20 * MIB, 3), { keepPages: { maxBytes: 8 * MIB } });
    expect(large.report.memory.reusedBytes).toBe(4 * MIB);
    await large.close();
    expect(keptPageBytes()).toBe(8 * MIB);
    await loadAndClose(filled(2 * MIB, 2), { keepPages: { maxBytes: 0 } });
    expect(keptPageBytes()).toBe(0);
  });

  it("go back on demand, in whole or in part", async () => {
    await loadAndClose(filled(8 * MIB, 1));
    expect([await releaseKeptPages(1), keptPageBytes()]).toEqual([2 * MIB, 6 * MIB]);
    expect([await releaseKeptPages(), keptPageBytes()]).toEqual([6 * MIB, 0]);
    expect(await releaseKeptPages()).toBe(0);
  });

  it("go back when no load takes them in time", async () => {
    await loadAndClose(filled(8 * MIB, 1), { keepPages: { maxBytes: 64 * MIB, idleMs: 1 } });
    await vi.waitFor(() => expect(keptPageBytes()).toBe(0));
  });

  it("are none of a load that failed, whose memory need not be filled", async () => {
    planFaults({ nth: 1, errno: 5 });
    const error = await errorFrom(loadCheckpoint(filled(8 * MIB, 1), { keepPages, driver: "pread" }));
    expect(error.code).toBe("ERR_TRANSFER_READ");
    expect(keptPageBytes()).toBe(0);
  });

  it("show nothing through a view that was moved away", async () => {
    const model = await loadCheckpoint(filled(8 * MIB, 1), { keepPages });
    const { buffer } = model.tensors.get("t")?.bytes() ?? new Uint8Array();
    const moved = new Uint8Array(structuredClone(buffer, { transfer: [buffer] }));
    await model.close();
    await using next = await loadCheckpoint(filled(8 * MIB, 2), { keepPages });
    expect(valuesOf(next)).toEqual([2]);
    expect(moved[0]).not.toBe(2);
    moved.fill(3);
    expect(valuesOf(next)).toEqual([2]);
  });

  it("are for memory of the load's own on the host", async () => {
    using arena = new VmmArena({ backend: hostBackend(), totalBytes: 8 * MIB });
    const path = filled(MIB, 1);
    for (const options of [{ arena }, { driver: "map" }, { device: "cuda:0" }] as const) {
      expect(await errorFrom(loadCheckpoint(path, { keepPages, ...options }))).toMatchObject({
        code: "ERR_OPTION_CONFLICT",
        option: "keepPages",
      });
    }
    for (const wrong of [{ maxBytes: -1 }, { maxBytes: "1" }, {}, null, { maxBytes: 1, idleMs: 1.5 }]) {
      expect(await errorFrom(loadCheckpoint(path, { keepPages: wrong as never }))).toMatchObject({ code: "ERR_OPTION_INVALID" });
    }
    expect(await errorFrom(releaseKeptPages(-1))).toMatchObject({ code: "ERR_OPTION_INVALID" });
  });
});

it("a worker's pages go to the loads of other threads, and the process ends though some are kept", async () => {
  const script = `
import { once } from "node:events";
import { isMainThread, Worker, workerData } from "node:worker_threads";
import { keptPageBytes, loadCheckpoint } from "modelexpress-client";
const keepPages = { maxBytes: 2 ** 30, idleMs: 3_600_000 };
async function load(path) {
  const model = await loadCheckpoint(path, { keepPages });
  const told = [model.report.memory.reusedBytes, model.tensors.get("t").bytes()[0]];
  await model.close();
  return told;
}
if (isMainThread) {
  const [one, two] = process.argv.slice(2);
  const worker = new Worker(new URL(import.meta.url), { workerData: one });
  await once(worker, "exit");
  console.log(JSON.stringify([keptPageBytes(), await load(two), keptPageBytes()]));
} else {
  await load(workerData);
}`;
  const { code, stdout, stderr } = await runNode(script, { args: [filled(8 * MIB, 1), filled(6 * MIB, 2)], timeoutMs: 20_000 });
  expect([code, stderr]).toEqual([0, ""]);
  expect(JSON.parse(stdout)).toEqual([8 * MIB, [6 * MIB, 2], 8 * MIB]);
});
