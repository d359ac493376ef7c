import { runInNewContext } from "node:vm";
import { describe, expect, it } from "vitest";
import { nearNames } from "../../src/checkpoint/near-names.js";
import { globToRegExp } from "../../src/plan/glob.js";
import { type NameSelector, selectRows } from "../../src/plan/select.js";
import { madeSource } from "../support/made-source.js";

const names = [
  "model.embed.weight",
  "model.layers.0.q.weight",
  "model.layers.0.q.bias",
  "model.layers.10.q.weight",
  "lm_head.weight",
  "odd[0]*name",
  "größe",
];
const source = madeSource([{ tensors: names.map((name) => ({ name, length: 4 })) }]);

function selected(include?: NameSelector, exclude?: NameSelector): string[] {
  return [...selectRows(source, include, exclude)].map((row) => source.nameOf(row));
}

describe("globToRegExp", () => {
  it.each([
    ["*", ["", "a", "a.b", "a/b\nc"], []],
    ["model.*.weight", ["model.a.weight", "model.a.b.weight", "model..weight"], ["model.weight", "xmodel.a.weight"]],
    ["a?c", ["abc", "a.c", "a🙂c"], ["ac", "abbc"]],
    ["[a-c]1", ["a1", "b1"], ["d1", "-1"]],
    ["[!a-c]1", ["d1", "-1"], ["a1"]],
    ["[^a]", ["b"], ["a"]],
    ["[]a]", ["]", "a"], ["b"]],
    ["[a-]", ["a", "-"], ["b"]],
    ["[\\]x]", ["]", "x"], ["\\"]],
    ["{q,k,v}_proj", ["q_proj", "v_proj"], ["qk_proj", "{q,k,v}_proj"]],
    ["{a,b{1,2}}", ["a", "b1", "b2"], ["b", "b1,2"]],
    ["a{,.bias}", ["a", "a.bias"], ["a."]],
    ["a,b}", ["a,b}"], ["a", "b"]],
    ["\\*\\[0\\]", ["*[0]"], ["x0", "x[0]"]],
    ["\\**", ["*", "*abc"], ["abc"]],
    ["a.b", ["a.b"], ["axb"]],
    ["(a|b)+$^", ["(a|b)+$^"], ["a", "b"]],
    ["**a***b", ["ab", "xaxb"], ["a"]],
  ])("%s", (glob, yes, no) => {
    const expression = globToRegExp(glob, "include");
    expect(yes.filter((name) => !expression.test(name))).toEqual([]);
    expect(no.filter((name) => expression.test(name))).toEqual([]);
  });

  it.each(["[a", "{a,b", "a\\", "[b-a]", "[!"])("refuses %s", (glob) => {
    expect(() => globToRegExp(glob, "include")).toThrow(expect.objectContaining({ code: "ERR_OPTION_INVALID", option: "include" }));
  });
});

describe("selectRows", () => {
  it("takes everything by default", () => {
    expect(selected()).toEqual(names);
  });

  it("takes names, globs, expressions, functions and arrays of them", () => {
    expect(selected("lm_head.weight")).toEqual(["lm_head.weight"]);
    expect(selected("model.layers.*.weight")).toEqual(["model.layers.0.q.weight", "model.layers.10.q.weight"]);
    expect(selected(/bias$/)).toEqual(["model.layers.0.q.bias"]);
    expect(selected((name) => name.length < 6)).toEqual(["größe"]);
    expect(selected(["größe", /bias/, "lm_*"])).toEqual(["model.layers.0.q.bias", "lm_head.weight", "größe"]);
    expect(selected("odd\\[0\\]\\*name")).toEqual(["odd[0]*name"]);
  });

  it("excludes after including", () => {
    expect(selected("model.*", "*.layers.0.*")).toEqual(["model.embed.weight", "model.layers.10.q.weight"]);
    expect(selected(undefined, ["model.*", /^o/])).toEqual(["lm_head.weight", "größe"]);
    expect(selected("lm_head.weight", "*")).toEqual([]);
  });

  it("is not fooled by the position of a global or sticky expression", () => {
    const global = /weight/g;
    global.lastIndex = 7;
    expect(selected(global)).toHaveLength(4);
    expect(global.lastIndex).toBe(7);
    expect(selected(/model/y)).toHaveLength(4);
  });

  it("lets a function that picks nothing pick nothing", () => {
    expect(selected(() => false)).toEqual([]);
  });

  it.each([
    ["lm_head.wieght", /did you mean "lm_head.weight"\?/],
    ["embed.weight", /did you mean "model.embed.weight"/],
    ["completely.different.thing", /names look like "model.embed.weight", "model.layers.0.q.weight", "model.layers.0.q.bias"/],
    ["", /there is no tensor ""/],
  ])("refuses the name %j, which no tensor has, in include and exclude", (pattern, message) => {
    for (const option of ["include", "exclude"] as const) {
      const attempt = () => (option === "include" ? selected(["lm_head.weight", pattern]) : selected(undefined, pattern));
      expect(attempt).toThrow(message);
      expect(attempt).toThrow(expect.objectContaining({ code: "ERR_PLAN_TENSOR_UNKNOWN", option }));
    }
  });

  it.each([
    ["nothing.*", /matches no tensor in \/models\/made/],
    [/^nothing/, /\/\^nothing\/ matches no tensor/],
    ["odd[0]*name", /put a backslash before each/],
  ])("refuses %s, which matches nothing, in include; in exclude it leaves nothing out", (pattern, message) => {
    const attempt = () => selected(["lm_head.weight", pattern]);
    expect(attempt).toThrow(message);
    expect(attempt).toThrow(expect.objectContaining({ code: "ERR_PLAN_TENSOR_UNKNOWN", option: "include" }));
    expect(selected(undefined, pattern)).toEqual(selected(undefined, undefined));
  });

  it("takes a regular expression and an array of another realm", () => {
    const foreign = runInNewContext('[/^lm_head/, "model.embed.weight"]') as RegExp[];
    expect(selected(foreign, undefined).sort()).toEqual(["lm_head.weight", "model.embed.weight"]);
  });

  it.each([[[]], [7], [null], [{}], [["a", 1]], [(() => "yes") as unknown], [(async () => true) as unknown]])(
    "refuses %o as a selector",
    (selector) => {
      expect(() => selected(selector as NameSelector)).toThrow(/include/);
    },
  );
});

describe("nearNames", () => {
  it("gives three at most, nearest first", () => {
    const many = Array.from({ length: 1000 }, (_, n) => `layers.${n}.weight`);
    expect(nearNames("layers.77.weigth", many)).toHaveLength(3);
    expect(nearNames("layers.77.weigth", many)[0]).toBe("layers.77.weight");
    expect(nearNames("x", ["completely"])).toEqual([]);
  });
});
