import { describe, expect, it, vi } from "vitest";
import { VmmArena } from "../../src/arena/arena.js";
import { hostBackend } from "../../src/arena/host-backend.js";
import { errorOf } from "../../src/errors.js";
import { loadCheckpoint } from "../../src/loader/load-checkpoint.js";
import { streamCheckpoint } from "../../src/loader/stream-checkpoint.js";
import { driverOf } from "../../src/transfer/drivers.js";
import { HostMemoryBackend } from "../support/host-memory-backend.js";
import { copyingDrivers, errorFrom, failureOf, planFaults, writeCheckpoint } from "../support/loading.js";
import { pattern } from "../support/safetensors.js";

const MIB = 2 ** 20;
const tensors = { a: { dtype: "U8", shape: [3 * MIB] }, b: { dtype: "F32", shape: [1000] } } as const;

describe("an arena of the caller", () => {
  it("takes two models side by side, and closing one leaves the other and the arena alone", async () => {
    using arena = new VmmArena({ backend: hostBackend(), totalBytes: 64 * MIB });
    const other = arena.malloc(1);
    const path = writeCheckpoint(tensors);
    const first = await loadCheckpoint(path, { arena });
    const second = await loadCheckpoint(path, { arena });
    expect(first.arena).toBe(arena);
    // One granule of 2 MiB before them, two for each.
    expect(first.tensors.get("a")?.address).toBe(arena.base + BigInt(2 * MIB) + ((first.tensors.get("a")?.address ?? 0n) % 512n));
    expect(arena).toMatchObject({ liveAllocationCount: 3, mappedBytes: 10 * MIB });
    const view = second.tensors.get("a")?.bytes();

    await first.close();
    expect(arena).toMatchObject({ closed: false, liveAllocationCount: 2, mappedBytes: 6 * MIB });
    expect(pattern("a", 3 * MIB).equals(view ?? Buffer.alloc(0))).toBe(true);
    await second.close();
    expect(view?.byteLength).toBe(0);
    expect(arena).toMatchObject({ closed: false, liveAllocationCount: 1, mappedBytes: 2 * MIB });
    arena.free(other);
  });

  it("may be closed before the model: the tensors are gone then, and closing the model does nothing", async () => {
    const arena = new VmmArena({ backend: hostBackend(), totalBytes: 64 * MIB });
    const model = await loadCheckpoint(writeCheckpoint(tensors), { arena });
    const tensor = model.tensors.get("a");
    const view = tensor?.bytes();
    arena.close();
    expect(view?.byteLength).toBe(0);
    expect(await errorFrom(() => tensor?.bytes())).toMatchObject({ code: "ERR_TENSOR_RELEASED", tensor: "a" });
    await model.close();
  });

  it("may have the allocation of a model freed by hand; closing the model then does nothing", async () => {
    using arena = new VmmArena({ backend: hostBackend(), totalBytes: 64 * MIB });
    const model = await loadCheckpoint(writeCheckpoint(tensors), { arena });
    arena.free(arena.base);
    expect(await errorFrom(() => model.tensors.get("a")?.bytes())).toMatchObject({ code: "ERR_ARENA_ADDRESS" });
    expect(await errorFrom(model.digest())).toMatchObject({ code: "ERR_ARENA_ADDRESS" });
    await model.close();
    expect(arena.liveAllocationCount).toBe(0);
  });

  it("gives a failed load's allocation back and stays open", async () => {
    using arena = new VmmArena({ backend: hostBackend(), totalBytes: 64 * MIB });
    planFaults({ nth: 1, errno: 5 });
    const error = await errorFrom(loadCheckpoint(writeCheckpoint(tensors), { arena, driver: "pread" }));
    expect(error).toMatchObject({ code: "ERR_TRANSFER_READ", errno: "EIO" });
    await error.settled;
    expect(arena).toMatchObject({ closed: false, liveAllocationCount: 0, mappedBytes: 0 });
  });
});

describe("a driver that refuses at once", () => {
  it("leaves no allocation in the caller's arena, and closes the load's own", async () => {
    const refusal = errorOf("ERR_TRANSFER_IO_URING_REFUSED", "refused");
    vi.spyOn(driverOf("io_uring"), "submit").mockImplementation(() => {
      throw refusal;
    });
    using arena = new VmmArena({ backend: hostBackend(), totalBytes: 64 * MIB });
    const path = writeCheckpoint(tensors);
    expect(await failureOf(loadCheckpoint(path, { arena, driver: "io_uring" }))).toBe(refusal);
    expect(arena).toMatchObject({ closed: false, liveAllocationCount: 0 });
    expect(await failureOf(streamCheckpoint(path, { arena, driver: "io_uring" }).next())).toBe(refusal);
    expect(arena.liveAllocationCount).toBe(0);
    const close = vi.spyOn(VmmArena.prototype, "closeInBackground");
    expect(await failureOf(loadCheckpoint(path, { driver: "io_uring" }))).toBe(refusal);
    expect(close).toHaveBeenCalledOnce();
  });
});

describe.each(copyingDrivers)("an arena over a backend written in TypeScript, by the driver %s", (driver) => {
  it("is filled and given back", async () => {
    const backend = new HostMemoryBackend();
    using arena = new VmmArena({ backend, totalBytes: 64 * MIB });
    const model = await loadCheckpoint(writeCheckpoint(tensors), { arena, driver });
    expect([...backend.live.values()]).toEqual([4 * MIB]);
    for (const [name, tensor] of model.tensors) expect(pattern(name, tensor.byteLength).equals(tensor.bytes())).toBe(true);
    await model.close();
    expect(backend.live.size).toBe(0);
    expect(arena.closed).toBe(false);
  });
});

describe("the load's own arena", () => {
  it("reserves what the plan needs and no more", async () => {
    const model = await loadCheckpoint(writeCheckpoint(tensors));
    expect(model.arena).toMatchObject({ totalBytes: 4 * MIB, liveAllocationCount: 1, device: "host", memory: "host" });
    await model.close();
    expect(model.arena.closed).toBe(true);
  });

  it("is there for a checkpoint without bytes as well", async () => {
    const model = await loadCheckpoint(writeCheckpoint({ nothing: { dtype: "F32", shape: [0, 5] } }));
    expect(model.arena).toMatchObject({ liveAllocationCount: 0, usedBytes: 0 });
    expect(model.tensors.get("nothing")).toMatchObject({ shape: [0, 5], byteLength: 0 });
    expect(model.tensors.get("nothing")?.bytes()).toEqual(new Uint8Array(0));
    expect(model.tensors.get("nothing")?.typed()).toEqual(new Float32Array(0));
    await model.close();
  });
});
