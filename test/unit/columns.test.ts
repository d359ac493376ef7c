import { expect, it } from "vitest";
import { entryOf, valueIn } from "../../src/columns.js";

it("gives entries of a column, and throws outside of it", () => {
  const column = Float64Array.of(0, 7);
  expect([entryOf(column, 0), entryOf(column, 1)]).toEqual([0, 7]);
  for (const row of [-1, 2, Number.NaN]) expect(() => entryOf(column, row)).toThrow(RangeError);
  expect(() => entryOf(BigUint64Array.of(), 0)).toThrow("a column of 0 entries has none at 0");
});

it("gives values of a map, 0 among them, and throws for a key that it lacks", () => {
  const map = new Map([["one", 0]]);
  expect(valueIn(map, "one")).toBe(0);
  expect(() => valueIn(map, "two")).toThrow(new RangeError("a map of 1 entries has none for two"));
});
