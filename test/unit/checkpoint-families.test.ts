import { describe, expect, it } from "vitest";
import { defaultTiers, pickedTiers, type WeightChoice, weightChoices } from "../../src/checkpoint/families.js";

const shards = (stem: string, total: number, variant = "") =>
  Array.from({ length: total }, (_, i) => `${stem}-0000${i + 1}-of-0000${total}${variant}.safetensors`);
const names = (choices: readonly { name: string }[]) => choices.map((choice) => choice.name);
const first = (tiers: readonly (readonly WeightChoice[])[]) => tiers.find((tier) => tier.length > 0) ?? [];

describe("weightChoices", () => {
  it("sorts names into indexes, files and numbered families", () => {
    const found = weightChoices([
      ...shards("model", 2),
      "model.safetensors.index.json",
      "lora.safetensors",
      "config.json",
      "tokenizer.model",
    ]);
    expect(found.map(({ name, stem, kind }) => [name, stem, kind])).toEqual([
      ["lora.safetensors", "lora", "file"],
      ["model.safetensors.index.json", "model", "index"],
      ["model-*-of-00002.safetensors", "model", "family"],
    ]);
    expect(found[2]?.files).toEqual(["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]);
  });

  it("knows variants by their stem", () => {
    const found = weightChoices([...shards("model", 1, ".fp16"), "model.fp16.safetensors", "model.safetensors.index.fp16.json"]);
    expect(found.map(({ stem, kind }) => [stem, kind])).toEqual([
      ["model.fp16", "file"],
      ["model.fp16", "index"],
      ["model.fp16", "family"],
    ]);
  });

  it("takes names that have line breaks in them", () => {
    const found = weightChoices(["a\nb.index.json", "a\nb.safetensors", "c\u2028d-1-of-1.safetensors", "e\rf.safetensors.index.json"]);
    expect(found.map(({ stem, kind }) => [stem, kind])).toEqual([
      ["a\nb", "index"],
      ["a\nb", "file"],
      ["e\rf", "index"],
      ["c\u2028d", "family"],
    ]);
  });

  it("passes over hidden names, other formats and their indexes", () => {
    expect(
      weightChoices(["._model.safetensors", ".safetensors", "pytorch_model.bin.index.json", "tf_model.h5.index.json", "a.bin"]),
    ).toEqual([]);
  });

  it("orders a family by number, not by name", () => {
    const [family] = weightChoices(["m-10-of-10.safetensors", ...Array.from({ length: 9 }, (_, i) => `m-${i + 1}-of-10.safetensors`)]);
    expect(family?.files.at(1)).toBe("m-2-of-10.safetensors");
    expect(family?.files.at(-1)).toBe("m-10-of-10.safetensors");
  });

  it("names the shards that a family lacks", () => {
    const [family] = weightChoices(["m-00001-of-00004.safetensors", "m-00003-of-00004.safetensors"]);
    expect(family).toMatchObject({ total: 4, missing: ["m-00002-of-00004.safetensors", "m-00004-of-00004.safetensors"] });
  });

  it("takes families that count from 0", () => {
    const [family] = weightChoices(["m-00000-of-00002.safetensors", "m-00001-of-00002.safetensors"]);
    expect(family).toMatchObject({ total: 2, missing: [] });
  });

  it("bounds its work for a family that claims to be huge", () => {
    const [family] = weightChoices(["m-1-of-99999999999.safetensors"]);
    expect(family?.missing.length).toBe(1000);
  });
});

describe("defaultTiers", () => {
  it.each([
    [
      "the standard index",
      ["model.safetensors", "model.safetensors.index.json", "consolidated.safetensors"],
      ["model.safetensors.index.json"],
    ],
    ["the standard file", ["model.safetensors", "consolidated.safetensors", "x.safetensors.index.json"], ["model.safetensors"]],
    ["another index", ["consolidated.safetensors.index.json", ...shards("consolidated", 2)], ["consolidated.safetensors.index.json"]],
    ["a lone file", ["diffusion_pytorch_model.safetensors"], ["diffusion_pytorch_model.safetensors"]],
    ["a lone family", shards("model", 3), ["model-*-of-00003.safetensors"]],
    ["nothing", ["config.json"], []],
    ["two indexes", ["a.safetensors.index.json", "b.safetensors.index.json"], ["a.safetensors.index.json", "b.safetensors.index.json"]],
    ["two families", [...shards("a", 1), ...shards("b", 1)], ["a-*-of-00001.safetensors", "b-*-of-00001.safetensors"]],
    ["two sizes of a family", [...shards("a", 1), ...shards("a", 2)], ["a-*-of-00001.safetensors", "a-*-of-00002.safetensors"]],
    ["a variant beside", ["u.safetensors", "u.fp16.safetensors"], ["u.fp16.safetensors", "u.safetensors"]],
  ])("%s", (_, folder, expected) => {
    expect(names(first(defaultTiers(weightChoices(folder))))).toEqual(expected);
  });
});

describe("pickedTiers", () => {
  const folder = weightChoices([
    ...shards("model", 2),
    "model.safetensors.index.json",
    "model.fp16.safetensors",
    ...shards("consolidated", 1),
    ...shards("consolidated", 2),
  ]);
  it.each([
    ["model", ["model.safetensors.index.json"]],
    ["model.fp16", ["model.fp16.safetensors"]],
    ["model.fp16.safetensors", ["model.fp16.safetensors"]],
    ["model-*-of-00002.safetensors", ["model-*-of-00002.safetensors"]],
    ["model-00002-of-00002.safetensors", ["model-00002-of-00002.safetensors"]],
    ["consolidated", ["consolidated-*-of-00001.safetensors", "consolidated-*-of-00002.safetensors"]],
    ["nothing", []],
  ])("%s", (weights, expected) => {
    expect(names(first(pickedTiers(folder, weights)))).toEqual(expected);
  });

  it("picks one file of a family alone", () => {
    const [choice] = first(pickedTiers(folder, "model-00002-of-00002.safetensors"));
    expect(choice).toMatchObject({ kind: "file", files: ["model-00002-of-00002.safetensors"], missing: [] });
  });
});
