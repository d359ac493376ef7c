import { getEventListeners } from "node:events";
import { setImmediate } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { VmmArena } from "../../src/arena/arena.js";
import { hostBackend } from "../../src/arena/host-backend.js";
import { openCheckpoint } from "../../src/checkpoint/open.js";
import { streamCheckpoint } from "../../src/loader/stream-checkpoint.js";
import type { Tensor } from "../../src/loader/tensor.js";
import { HostMemoryBackend } from "../support/host-memory-backend.js";
import { copyingDrivers, errorFrom, failureOf, planFaults, sleep, type Tensors, writeCheckpoint, writeShards } from "../support/loading.js";
import { moveBytes } from "../support/moved-bytes.js";
import { pattern } from "../support/safetensors.js";

const MIB = 2 ** 20;

function many(count: number, length: number, prefix = "t"): Tensors {
  return Object.fromEntries(Array.from({ length: count }, (_, index) => [`${prefix}${index}`, { dtype: "U8", shape: [length] }] as const));
}

function isRight(tensor: Tensor): boolean {
  return pattern(tensor.name, tensor.byteLength).equals(tensor.bytes());
}

describe("a stream", () => {
  it("hands out every tensor, right, in the order of shards and offsets", async () => {
    const folder = writeShards([
      many(5, 300_000, "z"),
      { empty: { dtype: "F32", shape: [0] }, ...many(3, 10, "a") },
      { last: { dtype: "F64", shape: [] } },
    ]);
    for (const maxBytes of [undefined, 300_000, 700_000, 100 * MIB]) {
      const names: string[] = [];
      for await (const tensor of streamCheckpoint(folder, { maxBytes })) {
        expect(isRight(tensor), tensor.name).toBe(true);
        names.push(tensor.name);
      }
      expect(names).toEqual(["z0", "z1", "z2", "z3", "z4", "empty", "a0", "a1", "a2", "last"]);
    }
  });

  it("takes a checkpoint that is open, and its selection", async () => {
    const checkpoint = await openCheckpoint(writeCheckpoint(many(4, 100)));
    const names: string[] = [];
    for await (const tensor of streamCheckpoint(checkpoint, { exclude: ["t1", "t2"], placement: "aligned", alignmentBytes: 256 })) {
      expect(isRight(tensor) && tensor.address % 256n === 0n).toBe(true);
      names.push(tensor.name);
    }
    expect(names).toEqual(["t0", "t3"]);
  });

  it("of a checkpoint without tensors, or without bytes, ends at once", async () => {
    for await (const tensor of streamCheckpoint(writeCheckpoint({}))) throw new Error(tensor.name);
    const shapes: unknown[] = [];
    for await (const tensor of streamCheckpoint(writeCheckpoint({ e: { dtype: "I8", shape: [0, 2] } }), { maxBytes: 1 })) {
      shapes.push(tensor.shape, tensor.bytes().length);
    }
    expect(shapes).toEqual([[0, 2], 0]);
  });

  it("without a bound keeps its tensors alive until the loop has ended, and gives its memory back then", async () => {
    using arena = new VmmArena({ backend: hostBackend(), totalBytes: 64 * MIB });
    const tensors: Tensor[] = [];
    let view: Uint8Array | undefined;
    for await (const tensor of streamCheckpoint(writeCheckpoint(many(6, 100_000)), { arena })) {
      tensors.push(tensor);
      view = tensor.bytes();
      expect(tensors.every(isRight)).toBe(true);
    }
    expect(new Set(tensors.map(({ address }) => address)).size).toBe(6);
    expect({ viewBytes: view?.length, left: arena.liveAllocationCount }).toEqual({ viewBytes: 0, left: 0 });
    expect(await errorFrom(() => tensors[0]?.bytes())).toMatchObject({ code: "ERR_TENSOR_RELEASED", tensor: "t0" });
  });

  it("without a bound waits for borrows when it is left", async () => {
    using arena = new VmmArena({ backend: hostBackend(), totalBytes: 64 * MIB });
    let borrowed: Promise<boolean> | undefined;
    for await (const tensor of streamCheckpoint(writeCheckpoint(many(6, 1000)), { arena })) {
      borrowed = tensor.use(async (bytes) => {
        await setImmediate();
        return pattern(tensor.name, 1000).equals(bytes);
      });
      break;
    }
    expect({ right: await borrowed, left: arena.liveAllocationCount }).toEqual({ right: true, left: 0 });
  });
});

describe("a stream with a bound", () => {
  it("detaches a tensor's bytes at the next step", async () => {
    const seen: { tensor: Tensor; view: Uint8Array }[] = [];
    for await (const tensor of streamCheckpoint(writeCheckpoint(many(6, 1000)), { maxBytes: 3000 })) {
      for (const earlier of seen) {
        expect(earlier.view.length).toBe(0);
        expect(await errorFrom(() => earlier.tensor.bytes())).toMatchObject({ code: "ERR_TENSOR_RELEASED" });
      }
      seen.push({ tensor, view: tensor.bytes(10, 20) });
    }
    expect(seen.map(({ view }) => view.length)).toEqual([0, 0, 0, 0, 0, 0]);
  });

  it.each([
    ["in memory of its own", undefined],
    ["in a caller's arena", () => hostBackend()],
    ["over a backend written in JavaScript", () => new HostMemoryBackend()],
  ])("leaves bytes that were moved out of a view as they are (%s)", async (_where, makeBackend) => {
    const arena = makeBackend && new VmmArena({ backend: makeBackend(), totalBytes: 256 * MIB });
    const moved: { name: string; bytes: Uint8Array }[] = [];
    const stream = async () => {
      const options = arena === undefined ? { maxBytes: 2000 } : { maxBytes: 2000, arena };
      for await (const tensor of streamCheckpoint(writeCheckpoint(many(12, 1000)), options)) {
        expect(isRight(tensor)).toBe(true);
        if (moved.length < 7) moved.push({ name: tensor.name, bytes: await moveBytes(tensor.bytes()) });
      }
      return "nothing was refused";
    };
    const outcome = await stream().catch((error) => error.code);
    for (const { name, bytes } of moved) expect(pattern(name, 1000).equals(bytes), name).toBe(true);
    // Such a backend's memory goes with the buffers that it was moved to.
    expect(outcome).toBe(arena?.nativeMemory === false ? "ERR_ARENA_BUSY" : "nothing was refused");
  });

  it("never holds more than two windows within it, whatever the checkpoint's size", async () => {
    using arena = new VmmArena({ backend: hostBackend(), totalBytes: 256 * MIB });
    let most = 0;
    let count = 0;
    for await (const tensor of streamCheckpoint(writeCheckpoint(many(48, MIB)), { maxBytes: 8 * MIB, arena })) {
      most = Math.max(most, arena.mappedBytes);
      count += Number(isRight(tensor));
      await sleep(1); // The window ahead is read meanwhile.
      expect(isRight(tensor)).toBe(true);
    }
    expect(count).toBe(48);
    // Two windows of 4 MiB, each in a slot with up to a huge page on either side.
    expect(most).toBeLessThanOrEqual(8 * MIB + 4 * 2 * MIB);
    expect(arena).toMatchObject({ liveAllocationCount: 0, mappedBytes: 0, closed: false });
  });

  it("takes a tensor as large as the bound, and refuses a larger one before anything is read", async () => {
    const path = writeCheckpoint({
      small: { dtype: "U8", shape: [10] },
      large: { dtype: "U8", shape: [3 * MIB] },
      other: { dtype: "U8", shape: [10] },
    });
    let count = 0;
    for await (const tensor of streamCheckpoint(path, { maxBytes: 3 * MIB })) count += Number(isRight(tensor));
    expect(count).toBe(3);
    const error = await errorFrom(streamCheckpoint(path, { maxBytes: 3 * MIB - 1 }).next());
    expect(error).toMatchObject({ code: "ERR_OPTION_INVALID", option: "maxBytes", largestTensorBytes: 3 * MIB, maxBytes: 3 * MIB - 1 });
  });
});

describe.each(copyingDrivers)("leaving a stream early, by the driver %s", (driver) => {
  it("stops the reads and gives the memory back", async () => {
    using arena = new VmmArena({ backend: hostBackend(), totalBytes: 64 * MIB });
    planFaults({ nth: 0, stallMs: 30 });
    let view: Uint8Array | undefined;
    for await (const tensor of streamCheckpoint(writeCheckpoint(many(12, MIB)), { driver, arena, maxBytes: 4 * MIB })) {
      view = tensor.bytes();
      break;
    }
    expect(view?.length).toBe(0);
    expect(arena.liveAllocationCount).toBe(0);
  });

  it("by an error of the loop does so too, and the error is the loop's", async () => {
    using arena = new VmmArena({ backend: hostBackend(), totalBytes: 64 * MIB });
    const thrown = new Error("the loop's");
    const loop = async () => {
      for await (const tensor of streamCheckpoint(writeCheckpoint(many(12, MIB)), { driver, arena, maxBytes: 4 * MIB })) {
        expect(isRight(tensor)).toBe(true);
        throw thrown;
      }
    };
    expect(await failureOf(loop())).toBe(thrown);
    expect(arena.liveAllocationCount).toBe(0);
  });

  it("waits closeTimeoutMs for reads that are stuck, and then says so", async () => {
    using arena = new VmmArena({ backend: hostBackend(), totalBytes: 64 * MIB });
    const path = writeCheckpoint(many(4, MIB), { pad: 4096 });
    // A window of one tensor each; the reads of the second and later are stuck.
    const options = { driver, arena, maxBytes: 2 * MIB, maxChunkBytes: MIB, closeTimeoutMs: 20, threads: 1 } as const;
    const stream = streamCheckpoint(path, options);
    expect((await stream.next()).value?.name).toBe("t0");
    planFaults({ nth: 0, stallMs: 600 });
    expect((await stream.next()).value?.name).toBe("t1");
    await sleep(100);
    expect(await errorFrom(stream.return())).toMatchObject({ code: "ERR_TRANSFER_STUCK" });
    expect(await errorFrom(() => arena.close())).toMatchObject({ code: "ERR_ARENA_BUSY" });
    while (arena.liveAllocationCount > 0) await sleep(20);
  });
});

describe("a stream that fails", () => {
  it("throws the read's error at the step that meets it, and gives the memory back", async () => {
    using arena = new VmmArena({ backend: hostBackend(), totalBytes: 64 * MIB });
    const stream = streamCheckpoint(writeCheckpoint(many(4, MIB)), { driver: "pread", arena, maxBytes: 2 * MIB });
    expect((await stream.next()).value?.name).toBe("t0");
    planFaults({ nth: 1, errno: 5 });
    expect((await stream.next()).value?.name).toBe("t1");
    expect(await errorFrom(stream.next())).toMatchObject({ code: "ERR_TRANSFER_READ", errno: "EIO" });
    expect(arena.liveAllocationCount).toBe(0);
    expect(await stream.next()).toEqual({ done: true, value: undefined });
  });

  it.each([undefined, 2 * MIB])("before the first tensor leaves nothing behind (maxBytes %s)", async (maxBytes) => {
    using arena = new VmmArena({ backend: hostBackend(), totalBytes: 64 * MIB });
    planFaults({ nth: 1, errno: 5 });
    const error = await errorFrom(streamCheckpoint(writeCheckpoint(many(4, MIB)), { driver: "pread", arena, maxBytes }).next());
    expect(error.code).toBe("ERR_TRANSFER_READ");
    await error.settled;
    expect(arena.liveAllocationCount).toBe(0);
  });

  it("by its signal rejects at once, though reads are stuck; `settled` covers all windows", async () => {
    using arena = new VmmArena({ backend: hostBackend(), totalBytes: 64 * MIB });
    planFaults({ nth: 0, stallMs: 800 });
    const controller = new AbortController();
    const reason = new Error("enough");
    const step = errorFrom(
      streamCheckpoint(writeCheckpoint(many(4, MIB)), { driver: "pread", arena, maxBytes: 2 * MIB, signal: controller.signal }).next(),
    );
    while (arena.liveAllocationCount === 0) await sleep(5);
    await sleep(100);
    controller.abort(reason);
    const error = await step;
    expect([error.code, error.cause]).toEqual(["ERR_ABORTED", reason]);
    // The reads are stuck still.
    expect(await errorFrom(() => arena.close())).toMatchObject({ code: "ERR_ARENA_BUSY" });
    await error.settled;
    expect(arena.liveAllocationCount).toBe(0);
    expect(getEventListeners(controller.signal, "abort")).toEqual([]);
  });

  it("at the first step where its signal was aborted before", async () => {
    const reason = new Error("never");
    const error = await errorFrom(streamCheckpoint("/nowhere", { signal: AbortSignal.abort(reason) }).next());
    expect([error.code, error.cause]).toEqual(["ERR_ABORTED", reason]);
  });

  it("at the next step where the loop aborts its signal, though the tensors are there", async () => {
    const controller = new AbortController();
    const stream = streamCheckpoint(writeCheckpoint(many(4, 10)), { signal: controller.signal });
    await stream.next();
    controller.abort("in the loop");
    expect(await errorFrom(stream.next())).toMatchObject({ code: "ERR_ABORTED", cause: "in the loop" });
  });

  it("by its deadline", async () => {
    using arena = new VmmArena({ backend: hostBackend(), totalBytes: 64 * MIB });
    planFaults({ nth: 0, stallMs: 1000 });
    const error = await errorFrom(streamCheckpoint(writeCheckpoint(many(4, MIB)), { driver: "pread", arena, timeoutMs: 100 }).next());
    expect(error).toMatchObject({ code: "ERR_TRANSFER_TIMEOUT", timeoutMs: 100 });
    // The reads are stuck still.
    expect(await errorFrom(() => arena.close())).toMatchObject({ code: "ERR_ARENA_BUSY" });
    await error.settled;
  });
});

describe("progress of a stream", () => {
  it("counts the whole, ends with the last byte, and comes at most 20 times a second", async () => {
    const told: { bytes: number; totalBytes: number }[] = [];
    const begun = performance.now();
    const stream = streamCheckpoint(writeCheckpoint(many(200, 1000)), { maxBytes: 2000, onProgress: (progress) => told.push(progress) });
    for await (const tensor of stream) expect(tensor.byteLength).toBe(1000);
    expect(told.at(-1)).toEqual({ bytes: 200_000, totalBytes: 200_000 });
    expect(told.length).toBeLessThanOrEqual((performance.now() - begun) / 50 + 2);
    expect(told.map(({ bytes }) => bytes)).toEqual(told.map(({ bytes }) => bytes).sort((one, other) => one - other));
  });

  it("that throws ends the stream", async () => {
    const onProgress = () => {
      throw "enough";
    };
    const error = await errorFrom(streamCheckpoint(writeCheckpoint(many(4, 1000)), { onProgress }).next());
    expect([error.code, error.cause]).toEqual(["ERR_ABORTED", "enough"]);
  });
});
