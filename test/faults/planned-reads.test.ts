import { describe, expect, it } from "vitest";
import { VmmArena } from "../../src/arena/arena.js";
import { hostBackend } from "../../src/arena/host-backend.js";
import { loadCheckpoint } from "../../src/loader/load-checkpoint.js";
import { copyingDrivers, errorFrom, evict, planFaults, type Tensors, writeShards } from "../support/loading.js";
import { pattern } from "../support/safetensors.js";

const MIB = 2 ** 20;
const [EINTR, EIO, EAGAIN] = [4, 5, 11];
const shards: readonly Tensors[] = [
  { first: { dtype: "U8", shape: [3 * MIB + 77] }, small: { dtype: "U8", shape: [1000] } },
  { second: { dtype: "U8", shape: [2 * MIB + 5] } },
];

/**
 * For every read that a load makes one load in which just that read goes wrong; on the ring these
 * are its completions.
 */
describe.each(copyingDrivers)("each read of the driver %s in turn", (driver) => {
  async function sweep(go: (path: string, nth: number, arena: VmmArena) => Promise<void>): Promise<void> {
    using arena = new VmmArena({ backend: hostBackend(), totalBytes: 2048 * MIB });
    const path = writeShards(shards);
    const files = [1, 2].map((index) => `${path}/model-${index}.safetensors`);
    evict(...files);
    let reads = 0;
    {
      await using model = await loadCheckpoint(path, options(arena));
      reads = model.report.reads;
    }
    expect(reads).toBeGreaterThanOrEqual(7);
    for (let nth = 1; nth <= reads; nth++) {
      evict(...files);
      await go(path, nth, arena);
      planFaults();
    }
    expect(arena.liveAllocationCount).toBe(0);
  }
  // Aligned: the first range goes straight to its place, others through a bounce buffer.
  const options = (arena: VmmArena) =>
    ({ driver, arena, maxChunkBytes: MIB, threads: 2, placement: "aligned", alignmentBytes: 64 }) as const;

  async function expectRight(path: string, arena: VmmArena): Promise<void> {
    await using model = await loadCheckpoint(path, options(arena));
    for (const [name, tensor] of model.tensors) {
      if (!pattern(name, tensor.byteLength).equals(tensor.bytes())) throw new Error(`the bytes of ${name} differ`);
    }
  }

  it("fails: the error names it, and nothing is left behind", async () => {
    await sweep(async (path, nth, arena) => {
      planFaults({ nth, errno: EIO });
      const error = await errorFrom(loadCheckpoint(path, options(arena)));
      expect(error, `read ${nth}`).toMatchObject({ code: "ERR_TRANSFER_READ", errno: "EIO", offset: expect.any(Number) });
      await error.settled;
      expect(arena.liveAllocationCount).toBe(0);
    });
  });

  it.each([1, 512, 4097])("comes short, %d bytes: the rest follows", async (shortBytes) => {
    await sweep(async (path, nth, arena) => {
      planFaults({ nth, shortBytes });
      await expectRight(path, arena);
    });
  });

  it.each([
    ["EINTR", EINTR],
    ["EAGAIN", EAGAIN],
  ])("is refused once with %s: it is made again", async (_, errno) => {
    await sweep(async (path, nth, arena) => {
      planFaults({ nth, errno });
      await expectRight(path, arena);
    });
  });

  it("stalls, while later shards have nothing to read: the load ends", async () => {
    await sweep(async (path, nth, arena) => {
      planFaults({ nth, stallMs: 20 });
      await using model = await loadCheckpoint(path, { ...options(arena), threads: 1, include: ["first", "small"], timeoutMs: 10_000 });
      expect(model.tensors.size).toBe(2);
    });
  });

  it("stalls: the others go on, and the load ends", async () => {
    await sweep(async (path, nth, arena) => {
      planFaults({ nth, stallMs: 20 });
      await expectRight(path, arena);
    });
  });
});
