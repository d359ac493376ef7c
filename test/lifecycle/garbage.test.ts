import { describe, expect, it } from "vitest";
import { VmmArena } from "../../src/arena/arena.js";
import { loadCheckpoint } from "../../src/loader/load-checkpoint.js";
import { streamCheckpoint } from "../../src/loader/stream-checkpoint.js";
import { HostMemoryBackend } from "../support/host-memory-backend.js";
import { beginLoad, copyingDrivers, planFaults, sleep, writeCheckpoint } from "../support/loading.js";
import { collectGarbage, processCounters } from "../support/process-counters.js";

const MIB = 2 ** 20;
const bytes = 24 * MIB;

function checkpoint(): string {
  return writeCheckpoint({ a: { dtype: "U8", shape: [bytes], bytes: Buffer.alloc(bytes, 5) } });
}

/** Memory that is in use; the page cache does not count. */
const residentBytes = () => processCounters().residentBytes;

/** Collects garbage until memory is down to a limit; false when it stays above. */
async function fallsBelow(limitBytes: number): Promise<boolean> {
  for (let look = 0; look < 50; look++) {
    await collectGarbage();
    if (residentBytes() < limitBytes) return true;
    await sleep(20);
  }
  return false;
}

describe.each([...copyingDrivers, "map"] as const)("what is unreachable is given back, with the driver %s", (driver) => {
  it("models that nobody closed", async () => {
    const path = checkpoint();
    await collectGarbage();
    const before = residentBytes();
    for (let round = 0; round < 6; round++) {
      const view = (await loadCheckpoint(path, { driver })).tensors.get("a")?.bytes();
      // Every page, so that mapped ones are there too.
      let sum = 0;
      for (let at = 0; at < bytes; at += 4096) sum += view?.[at] ?? 0;
      expect(sum).toBe((5 * bytes) / 4096);
    }
    expect(await fallsBelow(before + 2 * bytes)).toBe(true);
  });

  it("but a view keeps its bytes, though the model is gone", async () => {
    const path = checkpoint();
    await collectGarbage();
    const before = residentBytes();
    // In a function of its own, so that no register holds the model.
    const partOf = async () => (await loadCheckpoint(path, { driver })).tensors.get("a")?.bytes(bytes - 100, 50);
    let view = await partOf();
    for (let round = 0; round < 5; round++) {
      await collectGarbage();
      await sleep(10);
    }
    expect(view).toEqual(new Uint8Array(50).fill(5));
    if (driver !== "map") expect(residentBytes()).toBeGreaterThan(before + bytes / 2);
    view = undefined;
    expect(await fallsBelow(before + bytes / 2)).toBe(true);
  });

  it("and so does a tensor", async () => {
    const path = checkpoint();
    const tensorOf = async () => (await loadCheckpoint(path, { driver })).tensors.get("a");
    const tensor = await tensorOf();
    for (let round = 0; round < 5; round++) await collectGarbage();
    expect(tensor?.bytes(7, 3)).toEqual(new Uint8Array([5, 5, 5]));
  });
});

describe.each(copyingDrivers)("with reads in flight, by the driver %s, a collection", (driver) => {
  it("takes nothing away that they write to", async () => {
    planFaults({ nth: 0, stallMs: 10 });
    const path = checkpoint();
    let digest: string | undefined;
    loadCheckpoint(path, { driver, maxChunkBytes: MIB }).then(async (model) => {
      digest = (await model.digest()).get("a") ?? "none";
    });
    while (digest === undefined) await collectGarbage();
    // SHA-256 of 24 MiB of fives.
    expect(digest).toBe("eded3bc927c7399e3a87b7180ea5d136c970ec5a91023159628408a592d0b3ee");
  });

  it("neither does it when the load was given up: the memory goes after the last read", async () => {
    planFaults({ nth: 0, stallMs: 30 });
    const path = checkpoint();
    await collectGarbage();
    const before = residentBytes();
    for (let round = 0; round < 4; round++) {
      await loadCheckpoint(path, { driver, maxChunkBytes: MIB, timeoutMs: 20 }).catch(() => {});
      await collectGarbage();
    }
    expect(await fallsBelow(before + bytes / 2)).toBe(true);
  });
});

describe("a stream that nobody finished", () => {
  it.each([undefined, 30 * MIB])("is given back (maxBytes %s)", async (maxBytes) => {
    const path = checkpoint();
    await collectGarbage();
    const before = residentBytes();
    const firstOf = async () => (await streamCheckpoint(path, { maxBytes }).next()).value?.byteLength;
    for (let round = 0; round < 4; round++) expect(await firstOf()).toBe(bytes);
    expect(await fallsBelow(before + 2 * bytes)).toBe(true);
  });
});

describe("an arena over a backend written in TypeScript", () => {
  it("is closed by a finalizer when arena, model and views are gone, and not before", async () => {
    const backend = new HostMemoryBackend();
    const path = writeCheckpoint({ a: { dtype: "U8", shape: [100] } });
    const viewOf = async () => {
      const arena = new VmmArena({ backend, totalBytes: 16 * MIB });
      return (await loadCheckpoint(path, { arena, driver: "pread" })).tensors.get("a")?.bytes();
    };
    let view = await viewOf();
    for (let round = 0; round < 5; round++) await collectGarbage();
    expect(backend.live.size).toBe(1);
    expect(view?.length).toBe(100);
    view = undefined;
    for (let look = 0; look < 50 && backend.live.size > 0; look++) {
      await collectGarbage();
      await sleep(20);
    }
    expect(backend.live.size).toBe(0);
  });

  it("is closed only after the reads that are in flight", async () => {
    planFaults({ nth: 2, stallMs: 1000 });
    const backend = new HostMemoryBackend();
    const path = writeCheckpoint({ a: { dtype: "U8", shape: [64 * 1024] } });
    const giveUp = async () => {
      const arena = new VmmArena({ backend, totalBytes: 16 * MIB });
      const controller = new AbortController();
      const { load, begun } = beginLoad(path, { arena, driver: "pread", threads: 1, maxChunkBytes: 4096, signal: controller.signal });
      await begun;
      controller.abort();
      await load.catch(() => {});
    };
    await giveUp();
    await collectGarbage();
    expect(backend.live.size).toBe(1);
    for (let look = 0; look < 100 && backend.live.size > 0; look++) {
      await collectGarbage();
      await sleep(20);
    }
    expect(backend.live.size).toBe(0);
  });
});
