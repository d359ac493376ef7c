import { getEventListeners } from "node:events";
import { describe, expect, it } from "vitest";
import { VmmArena } from "../../src/arena/arena.js";
import { hostBackend } from "../../src/arena/host-backend.js";
import { loadCheckpoint } from "../../src/loader/load-checkpoint.js";
import { collectEvents } from "../support/events.js";
import { beginLoad, copyingDrivers, errorFrom, evict, planFaults, sleep, writeCheckpoint } from "../support/loading.js";

const MIB = 2 ** 20;
const tensors = { a: { dtype: "U8", shape: [2 * MIB] } } as const;
/** What the caller of an aborted or late load waits at most, whatever the storage does. */
const promptMs = 250;

describe("a signal that is aborted before the load", () => {
  it("is all that happens", async () => {
    const reason = Object.freeze(new Error("not today"));
    const events = collectEvents();
    const error = await errorFrom(loadCheckpoint("/nowhere", { signal: AbortSignal.abort(reason) }));
    expect(error).toMatchObject({ code: "ERR_ABORTED", message: "the call was stopped: its signal aborted (not today)", cause: reason });
    expect(events).toEqual([]);
    expect(reason).not.toHaveProperty("settled");
  });
});

describe.each(copyingDrivers)("while the driver %s is stuck in a read", (driver) => {
  /** The second read is stuck for so long. */
  function stuck(stallMs = 800) {
    planFaults({ nth: 2, stallMs });
    const arena = new VmmArena({ backend: hostBackend(), totalBytes: 16 * MIB });
    const path = writeCheckpoint(tensors);
    evict(path);
    return { arena, path, options: { arena, driver, maxChunkBytes: 512 * 1024 } };
  }

  it("an abort rejects at once with an error whose cause is the reason, and whose `settled` tells when the memory is free", async () => {
    const { arena, path, options } = stuck();
    const reason = new Error("enough");
    const controller = new AbortController();
    const { load, begun } = beginLoad(path, { ...options, signal: controller.signal });
    await begun;
    const { base } = arena;
    const aborted = performance.now();
    controller.abort(reason);
    const error = await errorFrom(load);
    expect([error.code, error.cause]).toEqual(["ERR_ABORTED", reason]);
    expect(reason).not.toHaveProperty("settled");
    expect(performance.now() - aborted).toBeLessThan(promptMs);

    expect(await errorFrom(() => arena.free(base))).toMatchObject({ code: "ERR_ARENA_BUSY" });
    expect(await errorFrom(() => arena.close())).toMatchObject({ code: "ERR_ARENA_BUSY" });
    expect(arena).toMatchObject({ state: "open", liveAllocationCount: 1 });
    await error.settled;
    expect(arena).toMatchObject({ state: "open", liveAllocationCount: 0 });
    arena.close();
    expect(getEventListeners(controller.signal, "abort")).toEqual([]);
  });

  it("the deadline rejects in time", async () => {
    const { arena, path, options } = stuck();
    const begun = performance.now();
    const error = await errorFrom(loadCheckpoint(path, { ...options, timeoutMs: 200 }));
    expect(performance.now() - begun).toBeLessThan(200 + promptMs);
    expect(error).toMatchObject({ code: "ERR_TRANSFER_TIMEOUT", timeoutMs: 200, totalBytes: 2 * MIB, name: "TransferError" });
    expect(error.message).toMatch(/of 2097152 bytes were in place after 200 ms/);
    expect(await errorFrom(() => arena.close())).toMatchObject({ code: "ERR_ARENA_BUSY" });
    await error.settled;
    arena.close();
  });

  it("other loads into the same arena go on, and memory can be had", async () => {
    const { arena, path, options } = stuck();
    const { load, begun } = beginLoad(path, { ...options, timeoutMs: 400 });
    await begun;
    await using model = await loadCheckpoint(path, { arena, driver: "map" });
    const error = await errorFrom(load);
    expect(model.tensors.get("a")?.bytes().length).toBe(2 * MIB);
    arena.free(arena.malloc(1));
    await error.settled;
    expect(arena.liveAllocationCount).toBe(1);
  });
});

describe("the reason of an abort", () => {
  /** The error of a load that is stuck in its second read when the signal aborts. */
  async function aborted(abort: (controller: AbortController) => void) {
    planFaults({ nth: 2, stallMs: 150 });
    const controller = new AbortController();
    const options = { driver: "pread", maxChunkBytes: 512 * 1024, signal: controller.signal } as const;
    const { load, begun } = beginLoad(writeCheckpoint(tensors), options);
    await begun;
    abort(controller);
    const error = await errorFrom(load);
    await error.settled;
    return error;
  }

  it.each([["stop"], [42], [null], [Object.freeze({ frozen: true })], [new DOMException("late", "TimeoutError")]])(
    "is the cause of the error, and stays as it is: %j",
    async (reason) => {
      const error = await aborted((controller) => controller.abort(reason));
      expect([error.code, error.cause]).toEqual(["ERR_ABORTED", reason]);
      expect(error.settled).toBeInstanceOf(Promise);
      if (typeof reason === "object" && reason !== null) expect(reason).not.toHaveProperty("settled");
    },
  );

  it("is Node's own where none is given", async () => {
    const error = await aborted((controller) => controller.abort());
    expect(error.cause).toMatchObject({ name: "AbortError" });
  });

  it("is shared by two loads of one signal, which have errors of their own", async () => {
    planFaults({ nth: 0, stallMs: 300 });
    const path = writeCheckpoint(tensors);
    using arena = new VmmArena({ backend: hostBackend(), totalBytes: 16 * MIB });
    const controller = new AbortController();
    const options = { driver: "pread", arena, signal: controller.signal } as const;
    const loads = [loadCheckpoint(path, options), loadCheckpoint(path, options)].map(errorFrom);
    while (arena.liveAllocationCount < 2) await sleep(5);
    controller.abort();
    const [first, second] = await Promise.all(loads);
    expect(first).not.toBe(second);
    expect(first?.cause).toBe(second?.cause);
    await Promise.all([first?.settled, second?.settled]);
    expect(arena.liveAllocationCount).toBe(0);
  });
});

describe("an abort that comes when all is in place", () => {
  it("changes nothing", async () => {
    const controller = new AbortController();
    await using model = await loadCheckpoint(writeCheckpoint(tensors), { signal: controller.signal });
    controller.abort();
    expect(model.tensors.get("a")?.bytes().length).toBe(2 * MIB);
    expect(getEventListeners(controller.signal, "abort")).toEqual([]);
  });
});

describe("onProgress", () => {
  it("is told of every byte in the end, never of fewer than before, and at most 20 times a second", async () => {
    planFaults({ nth: 0, stallMs: 30 });
    const told: { bytes: number; totalBytes: number }[] = [];
    const begun = performance.now();
    await using model = await loadCheckpoint(writeCheckpoint(tensors), {
      driver: "pread",
      threads: 1,
      maxChunkBytes: 128 * 1024,
      onProgress: (progress) => told.push(progress),
    });
    const elapsedMs = performance.now() - begun;
    expect(model.report.reads).toBe(16);
    expect(told.at(-1)).toEqual({ bytes: 2 * MIB, totalBytes: 2 * MIB });
    expect(told.length).toBeGreaterThan(2);
    expect(told.length).toBeLessThanOrEqual(elapsedMs / 50 + 1);
    expect(told.map(({ bytes }) => bytes)).toEqual(told.map(({ bytes }) => bytes).sort((one, other) => one - other));
  });

  it.each(["auto", "map"] as const)("is told once of a load that is done at once, by the driver %s", async (driver) => {
    const told: unknown[] = [];
    await using model = await loadCheckpoint(writeCheckpoint({ a: { dtype: "U8", shape: [100] } }), {
      driver,
      onProgress: (progress) => told.push(progress),
    });
    expect(told.at(-1)).toEqual({ bytes: 100, totalBytes: 100 });
    expect(model.tensors.size).toBe(1);
  });

  it("that throws ends the load, and is not called again", async () => {
    planFaults({ nth: 0, stallMs: 400 });
    using arena = new VmmArena({ backend: hostBackend(), totalBytes: 16 * MIB });
    const thrown = new RangeError("no more");
    let calls = 0;
    const onProgress = () => {
      calls++;
      throw thrown;
    };
    const error = await errorFrom(loadCheckpoint(writeCheckpoint(tensors), { driver: "pread", arena, onProgress }));
    expect(error).toMatchObject({ code: "ERR_ABORTED", message: "the call was stopped: onProgress threw (no more)", cause: thrown });
    await error.settled;
    expect(arena.liveAllocationCount).toBe(0);
    expect(calls).toBe(1);
  });

  it("that throws at the last call still ends the load", async () => {
    const error = await errorFrom(
      loadCheckpoint(writeCheckpoint(tensors), {
        onProgress: ({ bytes, totalBytes }) => {
          if (bytes === totalBytes) throw "at the end";
        },
      }),
    );
    expect([error.code, error.cause]).toEqual(["ERR_ABORTED", "at the end"]);
  });
});
