import { describe, expect, it } from "vitest";
import { cutWindows } from "../../src/loader/windows.js";
import { randomStream } from "../support/seed.js";

const MIB = 2 ** 20;
const column = (...values: number[]) => Float64Array.from(values);

describe("cutWindows", () => {
  it("cuts neighbours where the next one would pass the limit", () => {
    expect(cutWindows(column(0, 100, 200, 300), column(100, 100, 100, 100), 250)).toEqual([
      { begin: 0, end: 2, bytes: 200, addressOffset: 0, slotBytes: 2 * MIB },
      { begin: 2, end: 4, bytes: 200, addressOffset: 0, slotBytes: 2 * MIB },
    ]);
  });

  it("gives a tensor above the limit a window of its own", () => {
    expect(cutWindows(column(0, 10, 5 * MIB), column(10, 4 * MIB, 10), 1 * MIB)).toEqual([
      { begin: 0, end: 1, bytes: 10, addressOffset: 0, slotBytes: 2 * MIB },
      { begin: 1, end: 2, bytes: 4 * MIB, addressOffset: 0, slotBytes: 6 * MIB },
      { begin: 2, end: 3, bytes: 10, addressOffset: 4 * MIB, slotBytes: 2 * MIB },
    ]);
  });

  it("fills a window exactly to its limit", () => {
    expect(cutWindows(column(0, 50, 100), column(50, 50, 1), 100).map(({ bytes }) => bytes)).toEqual([100, 1]);
  });

  it("keeps empty tensors with their neighbours, and a window of only those needs a slot too", () => {
    expect(cutWindows(column(0, 10, 10), column(10, 0, 10), 10).map(({ begin, end }) => [begin, end])).toEqual([
      [0, 2],
      [2, 3],
    ]);
    expect(cutWindows(column(0, 0), column(0, 0), 10)).toEqual([{ begin: 0, end: 2, bytes: 0, addressOffset: 0, slotBytes: 2 * MIB }]);
  });

  it("of nothing is nothing", () => {
    expect(cutWindows(column(), column(), 10)).toEqual([]);
  });

  it("covers every tensor once, within its slot, at addresses that keep their alignment", () => {
    const { below } = randomStream();
    for (let round = 0; round < 200; round++) {
      const lengths = Float64Array.from({ length: below(40) }, () => (below(5) === 0 ? 0 : below(3 * MIB)));
      let cursor = below(10_000);
      const offsets = lengths.map((length) => {
        const at = cursor + below(3) * 256;
        cursor = at + length;
        return at;
      });
      const limit = 1 + below(8 * MIB);
      let next = 0;
      for (const window of cutWindows(offsets, lengths, limit)) {
        expect(window.begin).toBe(next);
        expect(window.end).toBeGreaterThan(window.begin);
        next = window.end;
        const sum = lengths.slice(window.begin, window.end).reduce((total, length) => total + length, 0);
        expect(window.bytes).toBe(sum);
        const above = lengths.slice(window.begin, window.end).filter((length) => length > 0).length > 1;
        if (above) expect(sum).toBeLessThanOrEqual(limit);
        expect(window.addressOffset % (2 * MIB)).toBe(0);
        for (let at = window.begin; at < window.end; at++) {
          expect(offsets[at]).toBeGreaterThanOrEqual(window.addressOffset);
          expect((offsets[at] ?? 0) + (lengths[at] ?? 0)).toBeLessThanOrEqual(window.addressOffset + window.slotBytes);
        }
      }
      expect(next).toBe(lengths.length);
    }
  });
});
