import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { VmmArena } from "../../src/arena/arena.js";
import type { NativeLiving } from "../../src/native/addon.js";
import { cutRegions } from "../../src/transfer/nixl/arena-regions.js";
import { Coverage } from "../../src/transfer/nixl/coverage.js";
import { testSeed } from "../support/seed.js";

/** An arena as far as cutting looks at it. `prove` throws what the driver would answer. */
function arena(memory: "host" | "device", prove?: (address: bigint, bytes: number) => void): VmmArena {
  const native = { proveOneRegion: async (address: bigint, bytes: number) => prove?.(address, bytes) };
  return { memory, nativeMemory: prove !== undefined, native } as unknown as VmmArena;
}

const failure = (code: string) => new Error(JSON.stringify({ code, message: `${code} of the driver`, facts: {} }));
const live = BigUint64Array.of(0n, 10n, 10n, 5n, 20n, 1n);

async function cut(of: VmmArena, allocations: boolean, ranges = live, spansHoles = false, holes: NativeLiving["holes"] = "empty") {
  const spans = { allocations, holes: spansHoles };
  const { address, length, layout, reason } = await cutRegions(of, { allocations: ranges, holes }, spans, "UCX");
  return { regions: [...address].map((begin, row) => [begin, length[row]]), layout, reason };
}

describe("cutRegions", () => {
  it("joins runs on the host", async () => {
    const { regions, layout, reason } = await cut(arena("host"), false);
    expect([regions, layout]).toEqual([
      [
        [0n, 15],
        [20n, 1],
      ],
      "runs",
    ]);
    expect(reason).toContain("2 runs");
    expect(await cut(arena("host"), false, live.subarray(0, 4))).toMatchObject({ regions: [[0n, 15]], layout: "one-region" });
  });

  it("keeps allocations apart on a device, unless they may be joined and the driver agrees", async () => {
    const asked: unknown[] = [];
    const agrees = arena("device", (address, bytes) => asked.push([address, bytes]));
    expect(await cut(agrees, false)).toMatchObject({
      regions: [
        [0n, 10],
        [10n, 5],
        [20n, 1],
      ],
      layout: "allocations",
    });
    expect(asked).toEqual([[20n, 1]]);
    expect(await cut(agrees, true)).toMatchObject({
      regions: [
        [0n, 15],
        [20n, 1],
      ],
      layout: "runs",
    });
    expect(asked.slice(1)).toEqual([
      [0n, 15],
      [20n, 1],
    ]);
    const refuses = arena("device", () => {
      throw failure("ERR_CUDA_REGION");
    });
    const refused = await cut(refuses, true);
    expect(refused).toMatchObject({
      regions: [
        [0n, 10],
        [10n, 5],
        [20n, 1],
      ],
      layout: "allocations",
    });
    expect(refused.reason).toContain("ERR_CUDA_REGION of the driver");
  });

  it("takes in the holes between a device's allocations where they may be and the driver agrees", async () => {
    const asked: unknown[] = [];
    const agrees = arena("device", (address, bytes) => asked.push([address, bytes]));
    const whole = await cut(agrees, true, live, true);
    expect(whole).toEqual({ regions: [[0n, 21]], layout: "one-region", reason: expect.stringContaining("holes included") });
    expect(asked).toEqual([[0n, 21]]);
    const onlySideBySide = arena("device", (_, bytes) => {
      if (bytes === 21) throw failure("ERR_CUDA_REGION");
    });
    const runs = [
      [0n, 15],
      [20n, 1],
    ];
    const refused = await cut(onlySideBySide, true, live, true);
    expect(refused).toMatchObject({ regions: runs, layout: "runs" });
    expect(refused.reason).toMatch(/^the holes are left out: ERR_CUDA_REGION of the driver; /);
    // Where no region may span allocations, none spans holes; and the host's holes have no memory.
    expect((await cut(agrees, false, live, true)).layout).toBe("allocations");
    expect(await cut(arena("host"), true, live, true)).toMatchObject({ regions: runs, layout: "runs" });
    // Without holes it is as ever.
    expect((await cut(agrees, true, live.subarray(0, 4), true)).reason).toBe("the driver exports the allocations of a run as one dma-buf");
  });

  it.each([
    ["moving", /^the holes are left out: memory in them is still being allocated or given back; /],
    ["held", /^the holes are left out: memory in them was freed, and is still pinned; /],
  ] as const)("leaves out holes with memory that is %s", async (holes, why) => {
    const asked: unknown[] = [];
    const agrees = arena("device", (address, bytes) => asked.push([address, bytes]));
    const { layout, reason } = await cut(agrees, true, live, true, holes);
    expect(layout).toBe("runs");
    expect(reason).toMatch(why);
    expect(asked).toEqual([
      [0n, 15],
      [20n, 1],
    ]);
  });

  it("asks no backend that is not native", async () => {
    const { layout, reason } = await cut(arena("device"), true);
    expect(layout).toBe("allocations");
    expect(reason).toContain("backend cannot prove");
  });

  it("takes a driver that cannot be asked for a failure", async () => {
    const broken = arena("device", () => {
      throw failure("ERR_CUDA_NO_CONTEXT");
    });
    await expect(cut(broken, false)).rejects.toMatchObject({ code: "ERR_CUDA_NO_CONTEXT" });
  });
});

it("Coverage finds what a look at every piece finds", () => {
  const piece = fc.tuple(fc.bigInt(0n, 60n), fc.integer({ min: 0, max: 30 }));
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 12 }), piece, (pieces, [address, length]) => {
      const coverage = new Coverage({
        kind: "DRAM",
        device: 0,
        address: BigUint64Array.from(pieces, ([begin]) => begin),
        length: Float64Array.from(pieces, ([, bytes]) => bytes),
      });
      const held = pieces.some(([begin, bytes]) => begin <= address && address + BigInt(length) <= begin + BigInt(bytes));
      expect(coverage.holds(address, length)).toBe(held);
    }),
    { seed: testSeed() },
  );
});
