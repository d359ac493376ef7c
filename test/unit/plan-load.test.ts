import { performance } from "node:perf_hooks";
import { describe, expect, it } from "vitest";
import { planColumns } from "../../src/plan/load-plan.js";
import { assertFits } from "../../src/plan/memory.js";
import { type PlanOptions, planLoad } from "../../src/plan/plan-load.js";
import { type MadeShard, madeSource } from "../support/made-source.js";

const availableMemory = { bytes: null, limitedBy: "unknown" };
const MIB = 2 ** 20;
const GIB = 2 ** 30;

describe("ranges and pieces", () => {
  const source = madeSource([
    {
      dataStart: 1000,
      tensors: [
        { name: "a", length: 3 * MIB },
        { name: "b", length: 9 * MIB },
        { name: "c", length: 50 },
        { name: "d", length: MIB },
      ],
    },
  ]);

  it("merges neighbours, and gives every byte once", () => {
    const plan = planLoad(source, { availableMemory, exclude: "c" });
    expect(plan.shards[0]?.ranges).toEqual([
      { offset: 1000, length: 12 * MIB },
      { offset: 12 * MIB + 1050, length: MIB },
    ]);
    expect(plan.shards[0]?.pieces).toEqual([
      { offset: 1000, length: 12 * MIB, addressOffset: 1000 },
      { offset: 12 * MIB + 1050, length: MIB, addressOffset: 12 * MIB + 1050 },
    ]);
    expect(plan.totals).toEqual({
      tensors: 3,
      bytes: 13 * MIB,
      ranges: 2,
      pieces: 2,
      allocationBytes: 13 * MIB + 1050,
      alignmentWasteBytes: 1050,
    });
  });

  it("counts beyond 4 GiB", () => {
    const GIB = 2 ** 30;
    const far = madeSource([
      {
        dataStart: 4096,
        tensors: [
          { name: "a", dtype: "F32", length: 5 * GIB },
          { name: "b", dtype: "F32", length: 4 },
          { name: "c", dtype: "F32", length: 3 * GIB },
        ],
      },
      { dataStart: 4096, tensors: [{ name: "d", dtype: "F32", length: 8 }] },
    ]);
    const plan = planLoad(far, { availableMemory });
    expect(plan.tensorPlacement("b")).toEqual({
      name: "b",
      shard: 0,
      offset: 5 * GIB + 4096,
      byteLength: 4,
      addressOffset: 5 * GIB + 4096,
    });
    expect(plan.tensorPlacement("d")).toEqual({ name: "d", shard: 1, offset: 4096, byteLength: 8, addressOffset: 8 * GIB + 4100 });
    expect(plan.totals).toMatchObject({ bytes: 8 * GIB + 12, pieces: 2, allocationBytes: 8 * GIB + 4108 });
  });
});

describe("the plan", () => {
  const source = madeSource([{ tensors: [{ name: "a", dtype: "F32", length: 8 }] }, { tensors: [{ name: "b", length: 5 }] }]);

  it("is frozen through and through", () => {
    const plan = planLoad(source, { availableMemory });
    const reachable: unknown[] = [plan, plan.checkpoint, plan.totals, plan.memory, plan.shards, ...plan.shards];
    for (const shard of plan.shards) reachable.push(shard.ranges, shard.pieces, ...shard.ranges, ...shard.pieces);
    expect(reachable.filter((part) => !Object.isFrozen(part))).toEqual([]);
    expect(Object.isFrozen(plan.tensorPlacement("a"))).toBe(true);
    expect(plan.shards[0]?.ranges).toBe(plan.shards[0]?.ranges);
  });

  it("prints whole", () => {
    expect(
      JSON.parse(JSON.stringify(planLoad(source, { availableMemory: { bytes: 2 ** 30, limitedBy: "MemAvailable" }, include: "b" }))),
    ).toEqual({
      checkpoint: { path: "/models/made", shards: 2, tensors: 2 },
      device: "host",
      placement: "auto",
      alignmentBytes: "element",
      shards: [
        {
          index: 1,
          file: "/models/made/1.safetensors",
          name: "1.safetensors",
          placement: "packed",
          aligned: true,
          tensors: 1,
          bytes: 5,
          rangeCount: 1,
          pieceCount: 1,
          ranges: [{ offset: 8, length: 5 }],
          pieces: [{ offset: 8, length: 5, addressOffset: 0 }],
          placements: [{ name: "b", shard: 1, offset: 8, byteLength: 5, addressOffset: 0 }],
        },
      ],
      totals: { tensors: 1, bytes: 5, ranges: 1, pieces: 1, allocationBytes: 5, alignmentWasteBytes: 0 },
      memory: {
        requiredBytes: 4096,
        slackBytes: 4096 + MIB + 1 + 256 + 64 + 128 * 1024 + 5,
        slack: {
          pageTableBytes: 4096,
          processBytes: MIB + 1 + 256 + 64,
          threadBytes: 128 * 1024,
          ringBytes: 5,
          bounceBytes: 0,
          pinnedBytes: 0,
          libraryBytes: 0,
        },
        availableBytes: 2 ** 30,
        limitedBy: "MemAvailable",
        hostAvailableBytes: 2 ** 30,
        hostLimitedBy: "MemAvailable",
        fits: true,
      },
    });
  });

  it("knows only what is selected", () => {
    const plan = planLoad(source, { availableMemory, include: "b" });
    expect(plan.tensorPlacement("a")).toBeUndefined();
    expect(plan.tensorPlacement("nothing")).toBeUndefined();
    expect([...planColumns(plan).rows]).toEqual([1]);
    expect(plan.shards.map(({ index }) => index)).toEqual([1]);
  });

  it.each([[undefined], [{}], ["/models/made"]])("is not made of %o", (checkpoint) => {
    expect(() => planLoad(checkpoint as never)).toThrow(expect.objectContaining({ code: "ERR_OPTION_INVALID", option: "checkpoint" }));
  });

  it("has columns only when planLoad made it", () => {
    expect(() => planColumns({ ...planLoad(source, { availableMemory }) })).toThrow(
      expect.objectContaining({ code: "ERR_OPTION_INVALID" }),
    );
  });

  it.each([
    [{ placement: "dense" }, "ERR_OPTION_UNKNOWN", "placement"],
    [{ placement: 3 }, "ERR_OPTION_INVALID", "placement"],
    [{ device: "cuda" }, "ERR_OPTION_INVALID", "device"],
    [{ alignmentBytes: 0 }, "ERR_OPTION_INVALID", "alignmentBytes"],
    [{ alignmentBytes: 24 }, "ERR_OPTION_INVALID", "alignmentBytes"],
    [{ alignmentBytes: 2 ** 22 }, "ERR_OPTION_INVALID", "alignmentBytes"],
    [{ maxChunkBytes: 4095 }, "ERR_OPTION_INVALID", "maxChunkBytes"],
    [{ maxChunkBytes: Number.POSITIVE_INFINITY }, "ERR_OPTION_INVALID", "maxChunkBytes"],
    [{ maxChunkBytes: "8MiB" }, "ERR_OPTION_INVALID", "maxChunkBytes"],
  ])("refuses %o", (options, code, option) => {
    expect(() => planLoad(source, { availableMemory, ...(options as PlanOptions) })).toThrow(expect.objectContaining({ code, option }));
  });

  it("for a device aligns at 256, says where, and asks nobody for memory", () => {
    const plan = planLoad(source, { device: "cuda:3" });
    expect([plan.device, plan.alignmentBytes, plan.toJSON().device]).toEqual(["cuda:3", 256, "cuda:3"]);
    expect(plan.memory).toMatchObject({ availableBytes: null, limitedBy: "not asked", fits: true });
    expect(plan.shards.every((shard) => shard.aligned)).toBe(true);
    expect(planLoad(source, { device: "cuda:3", alignmentBytes: 16 }).alignmentBytes).toBe(16);
    expect(planLoad(source, { availableMemory }).alignmentBytes).toBe("element");
    const full = planLoad(source, { device: "cuda:3", availableMemory: { bytes: 1, limitedBy: "all memory of cuda:3" } });
    expect(() => assertFits(full)).toThrow(
      expect.objectContaining({ code: "ERR_MEMORY_WOULD_NOT_FIT", limitedBy: "all memory of cuda:3" }),
    );
    expect(() => assertFits(full)).not.toThrow(/the driver `map`/);
  });

  it("takes undefined for not given", () => {
    expect(planLoad(source, { availableMemory, placement: undefined, include: undefined, alignmentBytes: undefined }).totals.tensors).toBe(
      2,
    );
  });

  it("reads the memory of the machine when none is given", () => {
    expect(planLoad(source).memory.availableBytes).toBeGreaterThan(0);
  });
});

describe("assertFits", () => {
  const source = madeSource([{ dataStart: 512, tensors: [{ name: "a", length: 1600 }] }]);
  const fits = (bytes: number | null, options: PlanOptions = {}) =>
    assertFits(planLoad(source, { ...options, availableMemory: { bytes, limitedBy: "/sys/fs/cgroup" } }));

  it("asks for whole pages, and what the load takes beside them", () => {
    const slackBytes = 4096 + (MIB + 50 + 256 + 64) + 128 * 1024 + 1600;
    expect(() => fits(4096 + slackBytes)).not.toThrow();
    expect(() => fits(4096 + slackBytes - 1)).toThrow(
      expect.objectContaining({
        code: "ERR_MEMORY_WOULD_NOT_FIT",
        requiredBytes: 4096,
        slackBytes,
        availableBytes: 4096 + slackBytes - 1,
        limitedBy: "/sys/fs/cgroup",
      }),
    );
    expect(() => fits(1700)).toThrow(/needs 4 KiB and 1.13 MiB beside it, and 1.66 KiB are available \(\/sys\/fs\/cgroup\)/);
  });

  it("asks for page tables, the heaps' growth, threads and reads in flight beside a large one", () => {
    const huge = madeSource([{ dataStart: 2 * MIB, tensors: [{ name: "a", length: 2 ** 36 }] }]);
    const planned = (options: PlanOptions) => planLoad(huge, { availableMemory: { bytes: 0, limitedBy: "x" }, ...options }).memory;
    const blockBytes = 2 ** 15 * 64;
    expect(planned({ threads: 4 }).slack).toEqual({
      pageTableBytes: 2 ** 27,
      processBytes: 16 * MIB + 256 + blockBytes,
      threadBytes: (4 + 9) * 128 * 1024,
      ringBytes: 64 * 1024 + 256 * 10 * 1024,
      bounceBytes: 0,
      pinnedBytes: 0,
      libraryBytes: 0,
    });
    expect(planned({ driver: "pread", threads: 4 }).slack).toMatchObject({ threadBytes: 4 * 128 * 1024, ringBytes: 6 * 8 * MIB });
    expect(planned({ driver: "nixl", threads: 4 }).slack).toMatchObject({ threadBytes: 5 * 128 * 1024, libraryBytes: 48 * MIB });
    expect(planned({ driver: "map", threads: 4 })).toMatchObject({
      requiredBytes: 0,
      slack: { pageTableBytes: 2 ** 27, ringBytes: 6 * 8 * MIB, threadBytes: 0 },
    });
  });

  it("asks for what is read ahead of each thread where reads go through the page cache, as the device of the file sets it", () => {
    const ringBytes = (shard: Omit<MadeShard, "tensors">, options: PlanOptions, lengths = [GIB]) => {
      const tensors = lengths.map((length, at) => ({ name: `${at}`, length, offset: 2 * MIB + at * 2 * GIB }));
      return planLoad(madeSource([{ dataStart: 2 * MIB, ...shard, tensors }]), { availableMemory, threads: 4, ...options }).memory.slack
        .ringBytes;
    };
    const ring = 64 * 1024 + 256 * 10 * 1024;
    expect(ringBytes({ readAheadBytes: 128 * 1024 }, { driver: "pread" })).toBe(6 * 128 * 1024);
    expect(ringBytes({ readAheadBytes: 64 * MIB }, { driver: "map" })).toBe(6 * 64 * MIB);
    expect(ringBytes({ readAheadBytes: 2 * GIB }, { driver: "pread" })).toBe(GIB);
    expect(ringBytes({ readAheadBytes: MIB }, { driver: "nixl" })).toBe(6 * MIB);
    const refused = { readAheadBytes: MIB, cachedUnderAuto: true };
    expect(ringBytes(refused, {})).toBe(ring + 6 * MIB);
    expect(ringBytes(refused, { driver: "io_uring" })).toBe(ring);
    expect(ringBytes({ readAheadBytes: MIB }, {})).toBe(ring);
    const short = Array<number>(4).fill(127 * 1024);
    expect(ringBytes({ readAheadBytes: MIB }, {}, [GIB, ...short])).toBe(ring + 4 * 127 * 1024);
    // Four slots of 64 MiB, each read by two threads.
    expect(ringBytes(refused, { driver: "staged", device: "cuda:0" })).toBe(4 * (64 * 1024 + 33 * 10 * 1024 + 4 * MIB));
  });

  it("asks for bounce buffers where direct reads cannot reach their place", () => {
    const odd = madeSource([{ dataStart: 3, tensors: [{ name: "a", dtype: "F32", length: 2 ** 30 }] }]);
    const { bounceBytes } = planLoad(odd, { availableMemory }).memory.slack;
    expect(bounceBytes).toBe(65 * 512 * 1024);
  });

  it("asks a device for whole granules, and the host for what is pinned", () => {
    const source = madeSource([{ dataStart: 512, tensors: [{ name: "a", length: 2 ** 30 + 1 }] }]);
    const held = (device: number) =>
      planLoad(source, { device: "cuda:0", availableMemory: { bytes: device, limitedBy: "free memory of cuda:0" } }).memory;
    const memory = held(2 ** 30 + 2 * MIB);
    expect(memory).toMatchObject({ requiredBytes: 2 ** 30 + 2 * MIB, fits: true, slack: { pinnedBytes: 256 * MIB } });
    expect(memory.hostAvailableBytes).toBeGreaterThan(0);
    expect(held(2 ** 30 + 2 * MIB - 1).fits).toBe(false);
  });

  it("lets pass what is not known, and mappings", () => {
    expect(() => fits(null)).not.toThrow();
    expect(() => fits(4 * MIB, { pageCongruent: 4096 })).not.toThrow();
  });
});

it("plans 92,000 tensors of 163 shards without an object for each", () => {
  const tensors = (shard: number) =>
    Array.from({ length: 565 }, (_, n) => ({ name: `s${shard}.t${n}`, dtype: "BF16" as const, length: 7168 }));
  const source = madeSource(Array.from({ length: 163 }, (_, shard) => ({ dataStart: 70_000, tensors: tensors(shard) })));
  const begin = performance.now();
  const plan = planLoad(source, { availableMemory });
  const elapsedMs = performance.now() - begin;
  expect(plan.totals.tensors).toBe(92_095);
  // Printed and not asserted: machines differ.
  console.info(`planned 92,095 tensors in ${elapsedMs.toFixed(1)} ms`);
});
