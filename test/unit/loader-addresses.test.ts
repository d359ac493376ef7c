import { describe, expect, it } from "vitest";
import { addressBounds, addressColumn } from "../../src/transfer/addresses.js";

describe("addressColumn", () => {
  it.each([
    [0n, [0, 1]],
    [0x7f00_0020_0000n, [0, 4096, 2 ** 32 - 0x20_0000 - 1, 2 ** 32, 2 ** 40 + 7]],
    [0xffff_ffffn, [0, 1, 2]],
    [2n ** 52n - 1n, [0, 1, 2 ** 40]],
    [2n ** 52n, [0, 1, 2 ** 40]],
    [0x10_0000_0000_0000n, [3]],
    [2n ** 63n, [0, 2 ** 53 - 1]],
  ])("adds offsets to %s exactly", (base, offsets) => {
    expect([...addressColumn(base, Float64Array.from(offsets))]).toEqual(offsets.map((offset) => base + BigInt(offset)));
  });

  it("of nothing is empty", () => {
    expect(addressColumn(5n, new Float64Array())).toEqual(new BigUint64Array());
  });
});

it("bounds what has bytes, in any order", () => {
  const address = BigUint64Array.of(500n, 7n, 100n, 9000n);
  expect(addressBounds(address, Float64Array.of(10, 0, 20, 0))).toEqual({ begin: 100n, end: 510n });
  expect(addressBounds(address, Float64Array.of(1, 1, 1, 1))).toEqual({ begin: 7n, end: 9001n });
  expect(addressBounds(address, new Float64Array(4))).toBeUndefined();
});
