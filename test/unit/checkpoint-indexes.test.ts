import { symlinkSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { openCheckpoint } from "../../src/checkpoint/open.js";
import { folderOf } from "../support/folders.js";
import { buildSafetensors } from "../support/safetensors.js";

const weights = (tensor: string) => buildSafetensors({ [tensor]: { dtype: "U8", shape: [4] } });
const indexOf = (weightMap: Readonly<Record<string, string>>) => JSON.stringify({ metadata: {}, weight_map: weightMap });

const opened = async (folder: string, picked?: string) => [...(await openCheckpoint(folder, { weights: picked })).tensors.keys()];
const lone = { "mymodel.safetensors": weights("lone") };
const family = { "m-1-of-2.safetensors": weights("a"), "m-2-of-2.safetensors": weights("b") };

describe("weights are not hidden by", () => {
  it.each<[string, Readonly<Record<string, Buffer | string>>]>([
    ["JSON of something else", { "vocab.index.json": '{"docs":[]}' }],
    ["JSON of something else under the same stem", { "mymodel.index.json": '{"docs":[]}' }],
    ["a file that is no JSON", { "search.index.json": "\x89 not JSON" }],
    ["an empty file", { "vocab.index.json": "" }],
    ["an index that names no files here", { "old.safetensors.index.json": indexOf({ a: "old-00001-of-00002.safetensors" }) }],
    ["an index of the same stem whose shards are gone", { "mymodel.safetensors.index.json": indexOf({ a: "mymodel-1-of-1.safetensors" }) }],
    ["an index of another stem that is broken", { "old.safetensors.index.json": "{" }],
    ["an index that names nothing", { "old.safetensors.index.json": '{"weight_map":{}}' }],
    ["an index that leaves the folder", { "old.safetensors.index.json": indexOf({ a: "../mymodel.safetensors" }) }],
    ["an index of another format", { "old.index.json": indexOf({ a: "old-1-of-1.bin" }), "old-1-of-1.bin": "PK" }],
    [
      "several of these",
      { "vocab.index.json": "{}", "a.index.json": "[]", "b.safetensors.index.json": indexOf({ a: "b-1-of-1.safetensors" }) },
    ],
  ])("%s", async (_, others) => {
    expect(await opened(folderOf({ ...lone, ...others }))).toEqual(["lone"]);
    expect(await opened(folderOf({ ...family, ...others }))).toEqual(["a", "b"]);
  });

  it("a standard index whose files are all gone, where the standard file is there", async () => {
    const folder = folderOf({
      "model.safetensors": weights("whole"),
      "model.safetensors.index.json": indexOf({ a: "model-00001-of-00001.safetensors" }),
    });
    expect(await opened(folder)).toEqual(["whole"]);
  });

  it("an index that the stem picks before the file", async () => {
    expect(await opened(folderOf({ ...lone, "mymodel.index.json": "{}", "x.safetensors": weights("x") }), "mymodel")).toEqual(["lone"]);
  });
});

describe("an index counts", () => {
  it("among unrelated ones, and names its shards wherever they are", async () => {
    const folder = folderOf({
      "below/x.safetensors": weights("below"),
      "big.safetensors.index.json": indexOf({ below: "below/x.safetensors" }),
      "old.safetensors.index.json": indexOf({ a: "old.safetensors" }),
      "vocab.index.json": "{}",
    });
    expect(await opened(folder)).toEqual(["below"]);
  });

  it("if one of its shards is there, and then all must be", async () => {
    const folder = folderOf({
      ...family,
      "m.safetensors.index.json": indexOf({ a: "m-1-of-2.safetensors", c: "m-3-of-3.safetensors" }),
    });
    await expect(openCheckpoint(folder)).rejects.toMatchObject({ code: "ERR_CHECKPOINT_SHARD_MISSING" });
  });

  it("if its shards are links that lead nowhere", async () => {
    const folder = folderOf({ ...lone, "m.safetensors.index.json": indexOf({ a: "m-1-of-1.safetensors" }) });
    symlinkSync("nowhere", join(folder, "m-1-of-1.safetensors"));
    await expect(openCheckpoint(folder)).rejects.toMatchObject({ code: "ERR_CHECKPOINT_AMBIGUOUS" });
    await expect(openCheckpoint(folder, { weights: "m.safetensors.index.json" })).rejects.toMatchObject({
      code: "ERR_CHECKPOINT_SHARD_MISSING",
    });
  });

  it("if it cannot be read, but its name is that of the weights here", async () => {
    const folder = folderOf({ ...family, "m.safetensors.index.json": '{"weight_map":{"a":' });
    await expect(openCheckpoint(folder)).rejects.toMatchObject({
      code: "ERR_CHECKPOINT_INDEX_INVALID",
      file: join(folder, "m.safetensors.index.json"),
    });
  });

  it("if it alone is there, or is asked for by its name", async () => {
    const broken = folderOf({ "m.safetensors.index.json": "{}" });
    await expect(openCheckpoint(broken)).rejects.toMatchObject({ code: "ERR_CHECKPOINT_INDEX_INVALID" });
    const asked = folderOf({ ...lone, "vocab.index.json": "{}" });
    await expect(openCheckpoint(asked, { weights: "vocab.index.json" })).rejects.toMatchObject({ code: "ERR_CHECKPOINT_INDEX_INVALID" });
  });

  it("by what it holds, where its name does not say that it is one", async () => {
    expect(await opened(folderOf({ "m.index.json": indexOf({ a: "part.st" }), "part.st": weights("a") }))).toEqual(["a"]);
    await expect(openCheckpoint(folderOf({ "vocab.index.json": '{"docs":[]}' }))).rejects.toMatchObject({
      code: "ERR_CHECKPOINT_NOT_FOUND",
      message: expect.stringContaining("files of other formats are there: vocab.index.json"),
    });
  });

  it("with another one beside that counts, too, is ambiguous", async () => {
    const folder = folderOf({
      ...family,
      "p.safetensors.index.json": indexOf({ a: "m-1-of-2.safetensors" }),
      "q.safetensors.index.json": indexOf({ b: "m-2-of-2.safetensors" }),
    });
    await expect(openCheckpoint(folder)).rejects.toMatchObject({
      code: "ERR_CHECKPOINT_AMBIGUOUS",
      choices: ["p.safetensors.index.json", "q.safetensors.index.json"],
    });
  });
});

it("weights with a line break in their name are found", async () => {
  expect(await opened(folderOf({ "a\nb.safetensors": weights("odd") }))).toEqual(["odd"]);
});
