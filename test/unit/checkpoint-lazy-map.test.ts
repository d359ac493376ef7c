import { inspect } from "node:util";
import { describe, expect, it } from "vitest";
import { LazyMap } from "../../src/checkpoint/lazy-map.js";

function lettersMap(names: readonly string[]) {
  const made: number[] = [];
  const map = new LazyMap<{ row: number }>({
    count: names.length,
    rowOf: (name) => names.indexOf(name),
    nameOf: (row) => names[row] ?? "",
    make: (row) => {
      made.push(row);
      return { row };
    },
  });
  return { map, made };
}

describe("LazyMap", () => {
  it("makes a value when it is asked for, once", () => {
    const { map, made } = lettersMap(["a", "b", "c"]);
    expect([map.size, map.has("b"), map.has("d"), [...map.keys()]]).toEqual([3, true, false, ["a", "b", "c"]]);
    expect(made).toEqual([]);
    expect(map.get("b")).toBe(map.get("b"));
    expect(map.get("d")).toBeUndefined();
    expect(made).toEqual([1]);
    expect([...map.values()].map(({ row }) => row)).toEqual([0, 1, 2]);
    expect(made).toEqual([1, 0, 2]);
  });

  it("iterates as a Map does", () => {
    const { map } = lettersMap(["z", "__proto__", ""]);
    const plain = new Map([...map]);
    expect([...map.entries()]).toEqual([...plain.entries()]);
    const seen: unknown[] = [];
    map.forEach(function (this: unknown, value, name, whole) {
      seen.push([this, value.row, name, whole === map]);
    }, "this");
    expect(seen).toEqual([
      ["this", 0, "z", true],
      ["this", 1, "__proto__", true],
      ["this", 2, "", true],
    ]);
  });

  it("shows a few entries when it is logged", () => {
    const { map, made } = lettersMap(Array.from({ length: 12 }, (_, i) => `t${i}`));
    expect(inspect(map)).toMatch(/^LazyMap\(12\) \{\s+'t0' => \{ row: 0 \},[\s\S]* and 2 more$/);
    expect(made.length).toBe(10);
    expect(inspect(lettersMap([]).map)).toBe("LazyMap(0) {}");
    expect(Object.prototype.toString.call(map)).toBe("[object LazyMap]");
  });
});
