import fc from "fast-check";
import { expect, it } from "vitest";
import { cutChunks, cutWindows } from "../../src/transfer/nixl/chunks.js";

it("cuts pieces at the longest chunk and windows at bytes, chunks and files", () => {
  const pieces = {
    file: Uint32Array.of(0, 0, 0, 1),
    offset: Float64Array.of(100, 5000, 7, 0),
    length: Float64Array.of(10, 0, 25, 3),
    address: BigUint64Array.of(1000n, 2000n, 3000n, 4000n),
  };
  const chunks = cutChunks(pieces, 10);
  expect([...chunks.file]).toEqual([0, 0, 0, 0, 1]);
  expect([...chunks.offset]).toEqual([100, 7, 17, 27, 0]);
  expect([...chunks.length]).toEqual([10, 10, 10, 5, 3]);
  expect([...chunks.address]).toEqual([1000n, 3000n, 3010n, 3020n, 4000n]);
  expect(cutWindows(chunks, 20, 100)).toEqual([
    { file: 0, begin: 0, end: 2, bytes: 20 },
    { file: 0, begin: 2, end: 4, bytes: 15 },
    { file: 1, begin: 4, end: 5, bytes: 3 },
  ]);
  expect(cutWindows(chunks, 5, 100).map(({ begin, end }) => end - begin)).toEqual([1, 1, 1, 1, 1]);
  expect(cutWindows(chunks, 1000, 2).map(({ begin, end }) => end - begin)).toEqual([2, 2, 1]);
  expect(cutWindows(cutChunks({ ...pieces, length: new Float64Array(4) }, 10), 5, 5)).toEqual([]);
});

it("cuts where the next chunk can be read directly, unless a block is longer than a chunk may be", () => {
  const pieces = {
    file: Uint32Array.of(0, 1),
    offset: Float64Array.of(1000, 1000),
    length: Float64Array.of(10_000, 10_000),
    address: BigUint64Array.of(0n, 20_000n),
  };
  const chunks = cutChunks(pieces, 5000, [512, 65_536]);
  expect([...chunks.offset]).toEqual([1000, 5632, 10_240, 1000, 6000]);
  expect([...chunks.length]).toEqual([4632, 4608, 760, 5000, 5000]);
  expect([...chunks.address]).toEqual([0n, 4632n, 9240n, 20_000n, 25_000n]);
});

it("covers every byte of every piece exactly once, in windows within their bounds", () => {
  const piece = fc.record({ file: fc.nat(3), offset: fc.nat(1000), length: fc.nat(200) });
  fc.assert(
    fc.property(
      fc.array(piece, { maxLength: 20 }),
      fc.integer({ min: 1, max: 64 }),
      fc.integer({ min: 1, max: 200 }),
      fc.integer({ min: 1, max: 9 }),
      (list, max, bytes, count) => {
        const sorted = list.toSorted((a, b) => a.file - b.file);
        const chunks = cutChunks(
          {
            file: Uint32Array.from(sorted, ({ file }) => file),
            offset: Float64Array.from(sorted, ({ offset }) => offset),
            length: Float64Array.from(sorted, ({ length }) => length),
            address: BigUint64Array.from(sorted, (_, row) => BigInt(row) << 20n),
          },
          max,
        );
        const covered = sorted.map(() => 0);
        for (const [at, length] of chunks.length.entries()) {
          const address = chunks.address[at] ?? 0n;
          const row = Number(address >> 20n);
          const within = Number(address & 0xfffffn);
          expect(within).toBe(covered[row]);
          expect(chunks.offset[at]).toBe((sorted[row]?.offset ?? 0) + within);
          expect(length).toBeGreaterThan(0);
          expect(length).toBeLessThanOrEqual(max);
          covered[row] = within + length;
        }
        expect(covered).toEqual(sorted.map(({ length }) => length));
        let next = 0;
        for (const window of cutWindows(chunks, bytes, count)) {
          expect(window.begin).toBe(next);
          expect(window.end - window.begin).toBeLessThanOrEqual(count);
          if (window.end - window.begin > 1) expect(window.bytes).toBeLessThanOrEqual(bytes);
          for (let at = window.begin; at < window.end; at++) expect(chunks.file[at]).toBe(window.file);
          next = window.end;
        }
        expect(next).toBe(chunks.length.length);
      },
    ),
  );
});
