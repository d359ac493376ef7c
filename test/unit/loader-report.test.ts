import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { loadCheckpoint } from "../../src/loader/load-checkpoint.js";
import { collectEvents } from "../support/events.js";
import { evict, ioUringRefusal, planFaults, writeCheckpoint, writeShards } from "../support/loading.js";

const MIB = 2 ** 20;
const EINVAL = 22;
/**
 * After a header of 8 + 56 or 8 + 64 bytes: not one whole direct-I/O block at the start, a large
 * middle, a tail.
 */
const tensors = { a: { dtype: "U8", shape: [3 * MIB] } } as const;
const anyTime = expect.any(Number);
const times = { openMs: anyTime, planMs: anyTime, allocateMs: anyTime, transferMs: anyTime, totalMs: anyTime };

describe("the report of a load", () => {
  it("says what was asked for, what was done and why: pread, warm", async () => {
    const path = writeCheckpoint(tensors);
    await using model = await loadCheckpoint(path, { driver: "pread", threads: 2, maxChunkBytes: MIB });
    const { report } = model;
    expect(report).toEqual({
      path,
      device: "host",
      driver: { asked: "pread", used: ["buffered"] },
      shards: [
        {
          name: "model.safetensors",
          file: path,
          placement: "packed",
          used: ["buffered"],
          reason: "asked for by name",
          identityNotKept: [],
          bytes: 3 * MIB,
          bytesFromCache: 3 * MIB,
          bytesFromDisk: 0,
        },
      ],
      tensors: 1,
      bytes: 3 * MIB,
      bytesFromCache: 3 * MIB,
      bytesFromDisk: 0,
      bytesPerSecond: expect.any(Number),
      ranges: 1,
      reads: expect.any(Number),
      threads: 2,
      allocationBytes: expect.any(Number),
      memory: { check: "enforce", reusedBytes: 0, ...model.plan.memory },
      hugePageBytes: expect.any(Number),
      nixl: null,
      times,
    });
    expect(report.reads).toBeGreaterThanOrEqual(3);
    expect(report.bytesPerSecond).toBe(Math.round((3 * MIB) / (report.times.transferMs / 1000)));
    const { openMs, planMs, allocateMs, transferMs, totalMs } = report.times;
    expect(openMs + planMs + allocateMs + transferMs).toBeCloseTo(totalMs, 6);
    expect(JSON.parse(JSON.stringify(report))).toEqual(report);
    expect([report, report.driver, report.driver.used, report.shards, report.shards[0], report.times].every(Object.isFrozen)).toBe(true);
  });

  it.skipIf(ioUringRefusal() !== "")("auto, cold: from the disk, around the page cache save the unaligned ends", async () => {
    const path = writeCheckpoint(tensors);
    evict(path);
    await using model = await loadCheckpoint(path);
    const { report } = model;
    expect(report.driver).toEqual({ asked: "auto", used: ["buffered", "io_uring"] });
    expect(report.shards[0]).toMatchObject({ reason: "nothing in the page cache", bytesFromCache: 0, bytesFromDisk: 3 * MIB });
    expect(report).toMatchObject({ bytesFromCache: 0, bytesFromDisk: 3 * MIB });
  });

  it("auto, warm: out of the page cache alone", async () => {
    await using model = await loadCheckpoint(writeCheckpoint(tensors));
    expect(model.report.driver).toEqual({ asked: "auto", used: ["buffered"] });
    expect(model.report.shards[0]).toMatchObject({ reason: "all in the page cache", bytesFromCache: 3 * MIB, bytesFromDisk: 0 });
  });

  it.skipIf(ioUringRefusal() !== "")(
    "auto, where a direct read is refused: that part buffered, and the reason, which is published too",
    async () => {
      // Whole blocks from the first byte to the last, far behind what was read ahead with the
      // header: the first read is a direct one.
      const path = writeCheckpoint({ a: { dtype: "U8", shape: [8 * MIB] }, b: { dtype: "U8", shape: [4 * MIB] } }, { pad: 4096 });
      evict(path);
      planFaults({ nth: 1, errno: EINVAL });
      const events = collectEvents();
      await using model = await loadCheckpoint(path, { include: "b" });
      expect(model.report.shards[0]).toMatchObject({
        used: ["buffered", "io_uring"],
        reason: "nothing in the page cache; direct read refused (EINVAL)",
        bytes: 4 * MIB,
      });
      expect(events.at(-1)).toEqual({ event: "load.fallback", file: path, driver: "auto", reason: "direct read refused (EINVAL)" });
    },
  );

  it("map: nothing was read, and nobody knows from where it comes", async () => {
    await using model = await loadCheckpoint(writeCheckpoint(tensors), { driver: "map" });
    expect(model.report).toMatchObject({
      driver: { asked: "map", used: ["map"] },
      reads: 0,
      bytes: 3 * MIB,
      bytesFromCache: null,
      bytesFromDisk: null,
    });
    expect(model.report.shards[0]).toMatchObject({ used: ["map"], placement: "packed", reason: "asked for by name" });
  });

  it("a checkpoint without bytes: nothing used", async () => {
    await using model = await loadCheckpoint(writeCheckpoint({}));
    const { report } = model;
    expect(report).toMatchObject({
      driver: { asked: "auto", used: [] },
      tensors: 0,
      bytes: 0,
      reads: 0,
      allocationBytes: 0,
      shards: [],
    });
    expect(report).toMatchObject({ bytesPerSecond: null, hugePageBytes: 0, bytesFromCache: 0, bytesFromDisk: 0 });
  });

  it("tells shards apart, and leaves out those of which nothing was asked", async () => {
    const folder = writeShards([
      { a: { dtype: "U8", shape: [10] } },
      { b: { dtype: "U8", shape: [20] } },
      { c: { dtype: "U8", shape: [30] } },
    ]);
    await using model = await loadCheckpoint(folder, { exclude: "b" });
    expect(model.report.shards.map(({ name, file, bytes }) => [name, file, bytes])).toEqual([
      ["model-1.safetensors", join(folder, "model-1.safetensors"), 10],
      ["model-3.safetensors", join(folder, "model-3.safetensors"), 30],
    ]);
    expect(model.report).toMatchObject({ tensors: 2, bytes: 40, path: folder });
  });

  it("publishes nothing of a fallback where there was none", async () => {
    const events = collectEvents();
    await using model = await loadCheckpoint(writeCheckpoint(tensors));
    expect(events.map(({ event }) => event)).toEqual(["arena.reserve"]);
    expect(model.closed).toBe(false);
  });
});
