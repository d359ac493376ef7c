import { describe, expect, it } from "vitest";
import type { TransferFiles, TransferPieces } from "../../src/native/addon.js";
import { type StagingWindow, stagingWindows } from "../../src/transfer/staged/windows.js";
import { randomStream } from "../support/seed.js";

const MIB = 2 ** 20;

function filesWith(aligns: readonly number[]): TransferFiles {
  return {
    paths: aligns.map((_, file) => `/shard-${file}`),
    size: new Float64Array(aligns.length).fill(2 ** 40),
    identity: new BigUint64Array(6 * aligns.length),
    dioOffsetAlign: Uint32Array.from(aligns),
    dioMemAlign: Uint32Array.from(aligns),
  };
}

type Row = readonly [file: number, offset: number, length: number, address: bigint];

function piecesOf(rows: readonly Row[]): TransferPieces {
  return {
    file: Uint32Array.from(rows, ([file]) => file),
    offset: Float64Array.from(rows, ([, offset]) => offset),
    length: Float64Array.from(rows, ([, , length]) => length),
    address: BigUint64Array.from(rows, ([, , , address]) => address),
  };
}

function cut(rows: readonly Row[], slotBytes: number, aligns: readonly number[] = [512, 512, 512]): StagingWindow[] {
  return [...stagingWindows(filesWith(aligns), piecesOf(rows), slotBytes)];
}

const readsOf = ({ reads }: StagingWindow) =>
  [...reads.file].map((file, row) => [file, reads.offset[row], reads.length[row], reads.slotOffset[row]]);
const copiesOf = ({ copies }: StagingWindow) => [...copies.from].map((from, row) => [from, copies.to[row], copies.length[row]]);

describe("windows of a batch", () => {
  it("read what is adjacent in a file at once, and copy what is adjacent on both sides at once", () => {
    const windows = cut(
      [
        [0, 100, 50, 1000n],
        [0, 150, 0, 7n],
        [0, 150, 50, 1050n],
        [0, 200, 10, 5000n],
        [1, 5000, 8, 5010n],
      ],
      4 * MIB,
    );
    expect(windows.length).toBe(1);
    // 5000 of the second file lies where an address is congruent to it modulo 4096.
    expect(windows.map(readsOf)).toEqual([
      [
        [0, 100, 110, 100],
        [1, 5000, 8, 904],
      ],
    ]);
    expect(windows.map(copiesOf)).toEqual([
      [
        [100, 1000n, 100],
        [200, 5000n, 10],
        [904, 5010n, 8],
      ],
    ]);
    expect(windows[0]?.bytes).toBe(118);
  });

  it("copy two runs at once where both ends go on", () => {
    const windows = cut(
      [
        [0, 0, 4096, 0n],
        [1, 8192, 10, 4096n],
      ],
      4 * MIB,
    );
    expect(windows.map(readsOf)).toEqual([
      [
        [0, 0, 4096, 0],
        [1, 8192, 10, 4096],
      ],
    ]);
    expect(windows.map(copiesOf)).toEqual([[[0, 0n, 4106]]]);
  });

  it("cut long runs at huge pages of the file, whatever tensors they consist of", () => {
    const windows = cut(
      [
        [0, 5 * MIB + 7, 4 * MIB, 0n],
        [0, 9 * MIB + 7, 6 * MIB, 1n << 40n],
      ],
      6 * MIB,
    );
    expect(windows.map(readsOf)).toEqual([[[0, 5 * MIB + 7, 5 * MIB - 7, MIB + 7]], [[0, 10 * MIB, 5 * MIB + 7, 0]]]);
    expect(windows.map(copiesOf)).toEqual([
      [
        [MIB + 7, 0n, 4 * MIB],
        [5 * MIB + 7, 1n << 40n, MIB - 7],
      ],
      [[0, (1n << 40n) + BigInt(MIB - 7), 5 * MIB + 7]],
    ]);
  });

  it("keep to the alignment that a file system asks for", () => {
    const [window] = cut([[0, 65536 + 12, 100, 0n]], 4 * MIB, [65536]);
    expect(window && readsOf(window)).toEqual([[0, 65536 + 12, 100, 12]]);
    const [odd] = cut([[0, 70000, 100, 0n]], 4 * MIB, [65536]);
    expect(odd && readsOf(odd)).toEqual([[0, 70000, 100, 70000 % 65536]]);
  });

  it("end after so many copies", () => {
    const rows = Array.from({ length: 10_000 }, (_, row): Row => [0, row * 8, 8, BigInt(row * 256)]);
    expect(cut(rows, 64 * MIB).map(({ copies }) => copies.from.length)).toEqual([4096, 4096, 1808]);
  });

  it("are none for a batch without bytes", () => {
    expect(cut([], 4 * MIB)).toEqual([]);
    expect(cut([[0, 3, 0, 0n]], 4 * MIB)).toEqual([]);
  });

  it("bring every byte once to its place, from slots congruent to the file, whatever the pieces", () => {
    const random = randomStream();
    for (let trial = 0; trial < 200; trial++) {
      const rows: Row[] = [];
      let address = 0n;
      for (let file = 0; file < 3; file++) {
        let offset = random.below(10_000);
        for (let piece = random.below(30); piece > 0; piece--) {
          const length = random.below(4) === 0 ? random.below(20 * MIB) : random.below(9000);
          rows.push([file, offset, length, address]);
          offset += length + (random.below(2) === 0 ? 0 : random.below(5000));
          address += BigInt(length + (random.below(2) === 0 ? 0 : random.below(300)));
        }
      }
      const slotBytes = (2 + random.below(6)) * 2 * MIB;
      const moved: Row[] = [];
      for (const window of cut(rows, slotBytes)) {
        let [end, at] = [0, 0];
        let bytes = 0;
        const copies = copiesOf(window) as [number, bigint, number][];
        for (const [file = 0, offset = 0, length = 0, slotOffset = 0] of readsOf(window)) {
          expect(slotOffset).toBeGreaterThanOrEqual(end);
          end = slotOffset + length;
          expect(end).toBeLessThanOrEqual(slotBytes);
          const period = length >= 4 * MIB ? 2 * MIB : 4096;
          expect(slotOffset % period).toBe(offset % period);
          bytes += length;
          // The copies out of this run; one may go on with the next run, where both ends do.
          while (at < copies.length) {
            const [from = 0, to = 0n, copied = 0] = copies[at] ?? [];
            if (from >= end) break;
            const part = Math.min(copied, end - from);
            moved.push([file, offset + from - slotOffset, part, to]);
            if (part === copied) at++;
            else copies[at] = [from + part, to + BigInt(part), copied - part];
          }
        }
        expect(bytes).toBe(window.bytes);
        expect(at).toBe(copies.length);
      }
      expect(joined(moved)).toEqual(joined(rows));
    }
  });
});

/** Pieces that follow one another in file and memory, as one. */
function joined(rows: readonly Row[]): Row[] {
  const out: [number, number, number, bigint][] = [];
  for (const [file, offset, length, address] of rows) {
    if (length === 0) continue;
    const last = out.at(-1);
    if (last !== undefined && last[0] === file && last[1] + last[2] === offset && last[3] + BigInt(last[2]) === address) last[2] += length;
    else out.push([file, offset, length, address]);
  }
  return out;
}
