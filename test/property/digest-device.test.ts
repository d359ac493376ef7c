import { createHash } from "node:crypto";
import fc from "fast-check";
import { expect, it } from "vitest";
import { digestBytes, digestDevice } from "../../src/loader/digest-device.js";
import type { NativeArena } from "../../src/native/addon.js";
import { pattern } from "../support/safetensors.js";

const MIB = 2 ** 20;
const base = 0x7f00_0000_0000n;
const memory = pattern("device", 12 * MIB);

/** Memory that is only copied, in pieces that are counted. */
function deviceMemory(copies: number[]): NativeArena {
  const copyToHost = async (address: bigint, length: number) => {
    copies.push(length);
    const at = Number(address - base);
    expect(at >= 0 && at + length <= memory.length).toBe(true);
    return new Uint8Array(memory.subarray(at, at + length));
  };
  return { copyToHost } as Partial<NativeArena> as NativeArena;
}

async function digests(ranges: readonly (readonly [offset: number, length: number])[], copies: number[] = []): Promise<string[]> {
  const addresses = BigUint64Array.from(ranges, ([offset]) => base + BigInt(offset));
  const lengths = Float64Array.from(ranges, ([, length]) => length);
  const all = Buffer.from(await digestDevice(deviceMemory(copies), addresses, lengths));
  return ranges.map((_, row) => all.toString("hex", row * digestBytes, (row + 1) * digestBytes));
}

const expected = (ranges: readonly (readonly [number, number])[]) =>
  ranges.map(([offset, length]) =>
    createHash("sha256")
      .update(memory.subarray(offset, offset + length))
      .digest("hex"),
  );

it("ranges of any length, in any order, with gaps or over each other, hash to what they hold, by copies of 2 MiB at most", async () => {
  const range = fc
    .tuple(fc.integer({ min: 0, max: 11 * MIB }), fc.oneof(fc.integer({ min: 0, max: 9000 }), fc.integer({ min: 0, max: 6 * MIB })))
    .map(([offset, length]): [number, number] => [offset, Math.min(length, memory.length - offset)]);
  await fc.assert(
    fc.asyncProperty(fc.array(range, { maxLength: 12 }), async (ranges) => {
      const copies: number[] = [];
      expect(await digests(ranges, copies)).toEqual(expected(ranges));
      expect(Math.max(0, ...copies)).toBeLessThanOrEqual(2 * MIB);
    }),
    { numRuns: 40 },
  );
});

it("neighbours come in one copy, and the bounds of pieces are bounds of none", async () => {
  const copies: number[] = [];
  const neighbours = Array.from({ length: 1000 }, (_, at): [number, number] => [at * 256, 200]);
  expect(await digests(neighbours, copies)).toEqual(expected(neighbours));
  expect(copies).toEqual([999 * 256 + 200]);
  const exact: [number, number][] = [
    [0, 2 * MIB],
    [2 * MIB, 2 * MIB + 1],
    [4 * MIB + 1, 4 * MIB],
    [9 * MIB, 0],
  ];
  expect(await digests(exact)).toEqual(expected(exact));
  expect(await digests([])).toEqual([]);
});

it("a copy that fails is the failure of the digest", async () => {
  const failing = { copyToHost: () => Promise.reject(new Error("gone")) } as Partial<NativeArena> as NativeArena;
  await expect(digestDevice(failing, BigUint64Array.of(1n, 2n), Float64Array.of(3 * MIB, 4))).rejects.toThrow("gone");
});
