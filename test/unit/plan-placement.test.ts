import { describe, expect, it } from "vitest";
import { planColumns } from "../../src/plan/load-plan.js";
import { type PlanOptions, planLoad } from "../../src/plan/plan-load.js";
import { type MadeShard, madeSource } from "../support/made-source.js";

const availableMemory = { bytes: null, limitedBy: "unknown" };

function plan(shards: readonly MadeShard[], options: PlanOptions = {}) {
  return planLoad(madeSource(shards), { availableMemory, ...options });
}

function addresses(shards: readonly MadeShard[], options: PlanOptions = {}): number[] {
  return [...planColumns(plan(shards, options)).addressOffset];
}

const large = 2 ** 20;
const weights = [
  { name: "a", dtype: "F32", length: large },
  { name: "b", dtype: "BF16", length: 6 },
  { name: "c", dtype: "U8", length: 3 },
] as const;

describe("packed", () => {
  it("starts congruent to the file offset where memory must be as aligned as offsets", () => {
    expect(addresses([{ dataStart: 1000, tensors: weights }])).toEqual([488, 488 + large, 494 + large]);
  });

  it("starts at a multiple of alignmentBytes where direct I/O asks little of memory", () => {
    expect(addresses([{ dataStart: 1000, dioMemAlign: 4, tensors: weights }], { placement: "packed", alignmentBytes: 256 })).toEqual([
      0,
      large,
      large + 6,
    ]);
  });

  it("keeps congruence where both cannot be had", () => {
    const [first] = addresses([{ dataStart: 1001, dioMemAlign: 4, tensors: weights }], { placement: "packed", alignmentBytes: 256 });
    expect(first).toBe(1);
    expect(addresses([{ dataStart: 1001, tensors: weights }], { placement: "packed" })[0]).toBe(489);
  });

  it("takes 4096 where statx says nothing", () => {
    expect(addresses([{ dataStart: 5000, dioMemAlign: 0, dioOffsetAlign: 0, tensors: weights }])[0]).toBe(904);
    expect(addresses([{ dataStart: 5000, dioMemAlign: 4096, dioOffsetAlign: 4096, tensors: weights }])[0]).toBe(904);
  });

  it("places a range without a whole block of direct I/O by alignment alone", () => {
    const odd = [{ name: "a", dtype: "F32", length: 400 }] as const;
    expect(addresses([{ dataStart: 1001, tensors: odd }])).toEqual([0]);
    expect(plan([{ dataStart: 1001, tensors: odd }]).shards[0]?.placement).toBe("packed");
  });

  it("puts shards one after the other, each with its own congruence", () => {
    const shard = { dataStart: 1000, tensors: [{ name: "a", dtype: "F32", length: 8192 }] } as const;
    const made = plan([shard, { ...shard, dataStart: 600, tensors: [{ name: "b", dtype: "F32", length: 8192 }] }]);
    expect([...planColumns(made).addressOffset]).toEqual([488, 8792]);
    expect(made.totals).toEqual({ tensors: 2, bytes: 16_384, ranges: 2, pieces: 2, allocationBytes: 16_984, alignmentWasteBytes: 600 });
  });

  it("follows the widest tensor of a range", () => {
    const mixed = [
      { name: "a", dtype: "U8", length: 3 },
      { name: "b", dtype: "F64", length: 8 },
    ] as const;
    expect(addresses([{ dataStart: 10, tensors: mixed }])).toEqual([5, 8]);
  });
});

describe("aligned", () => {
  it("is what auto falls back to", () => {
    const shards: MadeShard[] = [{ dataStart: 1001, tensors: weights }];
    expect(plan(shards).shards[0]).toMatchObject({ placement: "aligned", aligned: true, rangeCount: 1, pieceCount: 1 });
    expect(addresses(shards)).toEqual([0, large, large + 6]);
    expect(plan(shards, { placement: "packed" }).shards[0]).toMatchObject({ placement: "packed", aligned: false });
  });

  it("is decided for each shard alone", () => {
    const made = plan([
      { dataStart: 1000, tensors: weights },
      { dataStart: 1001, tensors: weights.map((tensor) => ({ ...tensor, name: `${tensor.name}2` })) },
    ]);
    expect(made.shards.map(({ placement }) => placement)).toEqual(["packed", "aligned"]);
  });

  it("puts each tensor at a multiple of alignmentBytes, neighbours side by side where their lengths allow", () => {
    const tensors = [256, 512, 100, 256].map((length, n) => ({ name: `t${n}`, length }));
    const made = plan([{ dataStart: 1000, tensors }], { placement: "aligned", alignmentBytes: 256 });
    expect([...planColumns(made).addressOffset]).toEqual([0, 256, 768, 1024]);
    expect(made.shards[0]?.pieces).toEqual([
      { offset: 1000, length: 868, addressOffset: 0 },
      { offset: 1868, length: 256, addressOffset: 1024 },
    ]);
    expect(made.totals.alignmentWasteBytes).toBe(156);
  });

  it("gives a large tensor an address for direct reads where its alignment allows one", () => {
    const tensors = [
      { name: "a", length: 5 },
      { name: "b", dtype: "F32", length: 16 * 512, offset: 1004 },
    ] as const;
    expect(addresses([{ tensors }], { placement: "aligned" })).toEqual([0, 492]);
    expect(addresses([{ tensors: [tensors[0], { ...tensors[1], length: 15 * 512 }] }], { placement: "aligned" })).toEqual([0, 8]);
  });

  it("reaches 2 MiB and no further", () => {
    const made = addresses([{ tensors: weights }], { alignmentBytes: 2 * 2 ** 20 });
    expect(made).toEqual([0, 2 * 2 ** 20, 4 * 2 ** 20]);
    expect(() => plan([{ tensors: weights }], { alignmentBytes: 4 * 2 ** 20 })).toThrow(
      /alignmentBytes must be a power of two up to 2097152/,
    );
  });

  it("counts a sub-byte dtype as bytes", () => {
    const tensors = [
      { name: "a", dtype: "F4", length: 1 },
      { name: "b", dtype: "F6_E2M3", length: 3 },
      { name: "c", dtype: "C64", length: 8 },
    ] as const;
    expect(addresses([{ dataStart: 9, tensors }], { placement: "aligned" })).toEqual([0, 1, 4]);
  });
});

describe("empty tensors", () => {
  const empty = (name: string, offset: number) => ({ name, dtype: "F64", length: 0, offset }) as const;

  it("cost no read and get an aligned address within the allocation", () => {
    const tensors = [
      empty("e0", 1000),
      { name: "a", dtype: "F32", length: 12, offset: 1000 },
      empty("e1", 1012),
      { name: "b", dtype: "F32", length: 8, offset: 1012 },
      empty("e2", 1020),
    ] as const;
    for (const placement of ["packed", "aligned"] as const) {
      const made = plan([{ tensors }], { placement });
      expect([...planColumns(made).addressOffset]).toEqual([0, 0, 8, 12, 16]);
      expect(made.totals).toMatchObject({ tensors: 5, bytes: 20, ranges: 1, pieces: 1, allocationBytes: 20 });
    }
  });

  it("do not part a range, also when they are left out", () => {
    const tensors = [
      { name: "a", length: 10 },
      { name: "e", length: 0 },
      { name: "b", length: 10 },
    ];
    expect(plan([{ tensors }], { exclude: "e" }).totals).toMatchObject({ ranges: 1, pieces: 1 });
  });

  it("alone make a plan without bytes", () => {
    const made = plan([{ tensors: [empty("a", 8), empty("b", 8)] }]);
    expect(made.totals).toEqual({ tensors: 2, bytes: 0, ranges: 0, pieces: 0, allocationBytes: 0, alignmentWasteBytes: 0 });
    expect(made.shards[0]).toMatchObject({ tensors: 2, rangeCount: 0, placement: "packed", aligned: true });
    expect(plan([{ tensors: [] }]).shards).toEqual([]);
  });
});

describe("pageCongruent", () => {
  const shards: MadeShard[] = [
    { dataStart: 1000, tensors: [{ name: "a", dtype: "F32", length: 8000 }] },
    {
      dataStart: 5001,
      tensors: [
        { name: "b", length: 100 },
        { name: "c", length: 9000 },
        { name: "d", length: 4 },
      ],
    },
  ];

  it("gives each shard one piece with pages of its own", () => {
    const made = plan(shards, { pageCongruent: 4096 });
    expect([...planColumns(made).addressOffset]).toEqual([1000, 12_288 + 905, 12_288 + 1005, 12_288 + 10_005]);
    expect(made.totals).toMatchObject({ pieces: 2, ranges: 2, allocationBytes: 24_576 });
    expect(made.memory).toMatchObject({ requiredBytes: 0, fits: true });
  });

  it("maps over what is left out", () => {
    const made = plan(shards, { pageCongruent: 4096, exclude: "c" });
    expect(made.shards[1]?.ranges).toEqual([
      { offset: 5001, length: 100 },
      { offset: 14_101, length: 4 },
    ]);
    expect(made.shards[1]?.pieces).toEqual([{ offset: 5001, length: 9104, addressOffset: 12_288 + 905 }]);
    expect(made.tensorPlacement("d")?.addressOffset).toBe(12_288 + 10_005);
  });

  it("takes no alignment", () => {
    expect(() => plan(shards, { pageCongruent: 4096, placement: "aligned" })).toThrow(
      expect.objectContaining({ code: "ERR_OPTION_CONFLICT", option: "placement" }),
    );
    expect(() => plan(shards, { pageCongruent: 4096, alignmentBytes: 64 })).toThrow(
      expect.objectContaining({ code: "ERR_OPTION_CONFLICT", option: "alignmentBytes" }),
    );
    expect(plan(shards, { pageCongruent: 4096, placement: "packed" }).shards[1]?.aligned).toBe(true);
  });
});
