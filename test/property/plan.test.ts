import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { dtypes, dtypeTable } from "../../src/checkpoint/dtype.js";
import { entryOf } from "../../src/columns.js";
import { addon } from "../../src/native/load.js";
import { type LoadPlan, planColumns } from "../../src/plan/load-plan.js";
import { type PlanOptions, planLoad } from "../../src/plan/plan-load.js";
import type { PlanSource } from "../../src/plan/source.js";
import { addressColumn } from "../../src/transfer/addresses.js";
import { transferFiles } from "../../src/transfer/files.js";
import { type MadeShard, madeSource } from "../support/made-source.js";
import { testSeed } from "../support/seed.js";

const availableMemory = { bytes: null, limitedBy: "unknown" };
const KIB = 1024;

/**
 * Lengths around everything that matters: nothing, less than a block, about a block, and far more.
 */
const lengths = fc.oneof(
  { weight: 2, arbitrary: fc.constant(0) },
  { weight: 5, arbitrary: fc.integer({ min: 1, max: 64 }) },
  { weight: 3, arbitrary: fc.integer({ min: 1, max: 20 * KIB }) },
  { weight: 1, arbitrary: fc.integer({ min: 1, max: 3 * 2 ** 20 }) },
  { weight: 1, arbitrary: fc.constantFrom(4096, 65_536, 2 ** 20) },
);

const shard = fc.record({
  dataStart: fc.oneof(
    fc.integer({ min: 10, max: 9000 }),
    fc.integer({ min: 2, max: 1200 }).map((n) => n * 8),
    fc.constant(2 ** 32 + 24),
  ),
  dioOffsetAlign: fc.constantFrom(0, 512, 4096, 777),
  dioMemAlign: fc.constantFrom(0, 4, 512, 4096),
  tensors: fc.array(fc.record({ dtype: fc.constantFrom(...dtypeTable.map(([name]) => name)), length: lengths, selected: fc.boolean() }), {
    maxLength: 12,
  }),
});

const setting = fc.record({
  shards: fc.array(shard, { maxLength: 4 }),
  placement: fc.constantFrom("auto", "packed", "aligned"),
  alignmentBytes: fc.constantFrom(undefined, 1, 8, 256, 4096, 2 ** 21),
  maxChunkBytes: fc.integer({ min: 4096, max: 2 ** 20 }),
  all: fc.boolean(),
} as const);

interface Setting {
  readonly shards: readonly MadeShard[];
  readonly selected: ReadonlySet<string>;
  readonly options: PlanOptions;
}

const settings: fc.Arbitrary<Setting> = setting.map(({ shards, all, ...options }) => {
  const selected = new Set<string>();
  const made = shards.map(({ tensors, ...rest }, index) => ({
    ...rest,
    tensors: tensors.map((tensor, nth) => {
      const name = `s${index}.t${nth}`;
      if (all || tensor.selected) selected.add(name);
      return { name, dtype: tensor.dtype, length: tensor.length };
    }),
  }));
  return {
    shards: made,
    selected,
    options: { ...options, availableMemory, ...(all ? {} : { include: (name: string) => selected.has(name) }) },
  };
});

interface Span {
  readonly begin: number;
  readonly end: number;
}

function expectDisjoint(spans: Span[], what: string): void {
  spans.sort((a, b) => a.begin - b.begin || a.end - b.end);
  for (let at = 1; at < spans.length; at++) expect((spans[at - 1]?.end ?? 0) <= (spans[at]?.begin ?? 0), what).toBe(true);
}

function tensorsOf(source: PlanSource, rows: Uint32Array, addressOffset: Float64Array) {
  return [...rows].map((row, at) => {
    const dtype = dtypes[source.columns.dtype[row] ?? 0];
    return {
      name: source.nameOf(row),
      shard: source.columns.shard[row] ?? 0,
      offset: source.columns.offset[row] ?? 0,
      length: source.columns.length[row] ?? 0,
      elementAlign: dtype?.alignBytes ?? 1,
      address: addressOffset[at] ?? 0,
    };
  });
}

/** What the native half would cut, were everything read directly. */
function blocksOf(source: PlanSource, plan: LoadPlan) {
  const { shard: file, offset, length, addressOffset } = planColumns(plan).pieces;
  const settings = { driver: "io_uring", threads: 1, bufferedBlockBytes: 2 ** 20, directBlockBytes: 2 ** 20, queueDepth: 1 } as const;
  const pieces = { file, offset, length, address: addressColumn(0n, addressOffset) };
  return addon().countBlocks(transferFiles(source.shards, source.shardColumns), pieces, settings);
}

function check(body: (setting: Setting) => void): void {
  fc.assert(fc.property(settings, body), { numRuns: 300, seed: testSeed() });
}

describe("a plan", () => {
  it("brings each wanted byte exactly once to its tensor, and nothing else, nothing past the end of a file", () => {
    check(({ shards, selected, options }) => {
      const source = madeSource(shards);
      const { rows, addressOffset, pieces } = planColumns(planLoad(source, options));
      const tensors = tensorsOf(source, rows, addressOffset);
      expect(new Set(tensors.map(({ name }) => name))).toEqual(selected);

      // Pieces ascend without overlap; cut at tensor bounds and joined again they are the tensors,
      // at their addresses.
      let at = 0;
      let position = tensors[0]?.offset ?? 0;
      const filled = tensors.filter(({ length }) => length > 0);
      position = filled[0]?.offset ?? 0;
      for (let piece = 0; piece < pieces.offset.length; piece++) {
        const pieceShard = pieces.shard[piece] ?? 0;
        const begin = pieces.offset[piece] ?? 0;
        const end = begin + (pieces.length[piece] ?? 0);
        expect(end).toBeGreaterThan(begin);
        expect(end).toBeLessThanOrEqual(source.shardColumns.size[pieceShard] ?? 0);
        let reached = begin;
        while (reached < end) {
          const tensor = filled[at];
          if (tensor === undefined) throw new Error("a piece brings what nobody wants");
          expect([pieceShard, reached]).toEqual([tensor.shard, position]);
          expect((pieces.addressOffset[piece] ?? 0) + (reached - begin)).toBe(tensor.address + (position - tensor.offset));
          reached = Math.min(end, tensor.offset + tensor.length);
          position = reached;
          if (reached === tensor.offset + tensor.length) position = filled[++at]?.offset ?? 0;
        }
      }
      expect(at).toBe(filled.length);
    });
  });

  it("lets no two tensors overlap in memory, and none leave the allocation", () => {
    check(({ shards, options }) => {
      const source = madeSource(shards);
      const plan = planLoad(source, options);
      const { rows, addressOffset } = planColumns(plan);
      const tensors = tensorsOf(source, rows, addressOffset);
      for (const { address, length } of tensors) {
        expect(address).toBeGreaterThanOrEqual(0);
        expect(address + length).toBeLessThanOrEqual(plan.totals.allocationBytes);
      }
      expectDisjoint(
        tensors.filter(({ length }) => length > 0).map(({ address, length }) => ({ begin: address, end: address + length })),
        "tensors overlap",
      );
    });
  });

  it("holds its promises of alignment", () => {
    check(({ shards, options }) => {
      const source = madeSource(shards);
      const plan = planLoad(source, options);
      const { rows, addressOffset } = planColumns(plan);
      for (const tensor of tensorsOf(source, rows, addressOffset)) {
        const align = options.alignmentBytes ?? tensor.elementAlign;
        const shardPlan = plan.shards.find(({ index }) => index === tensor.shard);
        if (options.placement !== "packed") expect(shardPlan?.aligned).toBe(true);
        if (shardPlan?.aligned || tensor.length === 0) expect(tensor.address % align).toBe(0);
      }
    });
  });

  it("says of each shard whether it is aligned, and packs under auto exactly where that is", () => {
    check(({ shards, options }) => {
      const source = madeSource(shards);
      const packed = planLoad(source, { ...options, placement: "packed" });
      const auto = planLoad(source, { ...options, placement: "auto" });
      expect(auto.shards.map(({ placement }) => placement)).toEqual(packed.shards.map(({ aligned }) => (aligned ? "packed" : "aligned")));
      const { rows, addressOffset } = planColumns(packed);
      const unaligned = new Set(
        tensorsOf(source, rows, addressOffset)
          .filter(({ address, elementAlign }) => address % (options.alignmentBytes ?? elementAlign) !== 0)
          .map((tensor) => tensor.shard),
      );
      expect(packed.shards.filter(({ aligned }) => !aligned).map(({ index }) => index)).toEqual([...unaligned]);
    });
  });

  it("packs so that the native half reads every whole block straight to its place", () => {
    check(({ shards, options }) => {
      const source = madeSource(shards);
      expect(blocksOf(source, planLoad(source, { ...options, placement: "packed" })).bouncedBytes).toBe(0);
    });
  });

  it("counts no less for bounce buffers than the native half needs", () => {
    check(({ shards, options }) => {
      const source = madeSource(shards);
      const plan = planLoad(source, options);
      expect(planColumns(plan).shape.bouncedBytes).toBeGreaterThanOrEqual(blocksOf(source, plan).bouncedBytes);
    });
  });

  it("wastes less than one alignment for each range or tensor", () => {
    check(({ shards, options }) => {
      const source = madeSource(shards);
      for (const placement of ["packed", "aligned"] as const) {
        const plan = planLoad(source, { ...options, placement });
        const { memory } = addon().directAlign(source.shardColumns.dioOffsetAlign, source.shardColumns.dioMemAlign);
        let bound = 0;
        for (const { index, ranges, tensors, bytes } of plan.shards) {
          const memoryAlign = entryOf(memory, index);
          const align = options.alignmentBytes ?? 8;
          // Aligned placement pads for direct reads only by a sixteenth of the tensor.
          const period = (length: number) =>
            Math.max(memoryAlign, align, length < 4 * 2 ** 20 ? 1 : length < 256 * 2 ** 20 ? 4096 : 2 ** 21);
          const packedBound = ranges.reduce((sum, { length }) => sum + period(length) - 1, 0);
          bound += placement === "packed" ? packedBound : tensors * (align - 1) + bytes / 16;
        }
        expect(plan.totals.alignmentWasteBytes).toBeLessThanOrEqual(bound);
        expect(plan.totals.alignmentWasteBytes).toBe(plan.totals.allocationBytes - plan.totals.bytes);
      }
    });
  });

  it("is frozen, and tells the same as its columns and its JSON", () => {
    check(({ shards, options }) => {
      const source = madeSource(shards);
      const plan = planLoad(source, options);
      const { pieces } = planColumns(plan);
      expect([plan, plan.totals, ...plan.shards, ...plan.shards.flatMap((s) => s.pieces)].every(Object.isFrozen)).toBe(true);
      expect(plan.shards.flatMap((s) => s.pieces.map(({ offset }) => offset))).toEqual([...pieces.offset]);
      expect(plan.shards.reduce((sum, s) => sum + s.ranges.reduce((bytes, range) => bytes + range.length, 0), 0)).toBe(plan.totals.bytes);
      expect(plan.shards.reduce((sum, s) => sum + s.rangeCount, 0)).toBe(plan.totals.ranges);
      for (const tensor of plan.toJSON().shards.flatMap((s) => s.placements)) expect(plan.tensorPlacement(tensor.name)).toEqual(tensor);
    });
  });

  it("for a mapping gives every shard addresses congruent to its file, and pages of its own", () => {
    check(({ shards, options }) => {
      const { placement: _, alignmentBytes: __, ...rest } = options;
      for (const page of [4096, 65_536]) {
        const source = madeSource(shards);
        const plan = planLoad(source, { ...rest, pageCongruent: page });
        const { rows, addressOffset, pieces } = planColumns(plan);
        const spans = [...pieces.offset].map((offset, at) => {
          const address = pieces.addressOffset[at] ?? 0;
          expect(address % page).toBe(offset % page);
          return { begin: Math.floor(address / page), end: Math.ceil((address + (pieces.length[at] ?? 0)) / page) };
        });
        for (const { end } of spans) expect(end * page).toBeLessThanOrEqual(plan.totals.allocationBytes);
        expectDisjoint(spans, "two shards share a page");
        expect(new Set(pieces.shard).size).toBe(pieces.shard.length);
        for (const tensor of tensorsOf(source, rows, addressOffset)) {
          if (tensor.length > 0) expect(tensor.address % page).toBe(tensor.offset % page);
          else expect(tensor.address % tensor.elementAlign).toBe(0);
        }
      }
    });
  });
});
