import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { pathToFileURL } from "node:url";
import { describe, expect, it } from "vitest";
import { openCheckpoint } from "../../src/checkpoint/open.js";
import { CheckpointError } from "../../src/errors.js";
import { temporaryFolder } from "../support/folders.js";
import { collectGarbage, processCounters } from "../support/process-counters.js";
import { buildSafetensors, rawHeader, writeIndex } from "../support/safetensors.js";

const bytes = (name: string, length = 4) => buildSafetensors({ [name]: { dtype: "U8", shape: [length] } });

/**
 * A folder with these files; a string is the text of a file, an object the weight map of an index.
 */
function folderOf(files: Readonly<Record<string, Buffer | string | Readonly<Record<string, string>>>>): string {
  const folder = temporaryFolder();
  for (const [name, contents] of Object.entries(files)) {
    const path = join(folder, name);
    mkdirSync(join(path, ".."), { recursive: true });
    if (Buffer.isBuffer(contents) || typeof contents === "string") writeFileSync(path, contents);
    else writeIndex(path, contents);
  }
  return folder;
}

const names = async (path: string | URL, weights?: string) => [...(await openCheckpoint(path, { weights })).tensors.keys()];

async function refused(opening: Promise<unknown>): Promise<CheckpointError> {
  const error = await opening.then(
    () => undefined,
    (reason) => reason,
  );
  expect(error).toBeInstanceOf(CheckpointError);
  return error as CheckpointError;
}

describe("a checkpoint of one file", () => {
  it("tells everything of its tensors", async () => {
    const folder = folderOf({
      "model.safetensors": buildSafetensors(
        {
          w: { dtype: "BF16", shape: [2, 3] },
          "": { dtype: "F4", shape: [4] },
          größe: { dtype: "I64", shape: [] },
          none: { dtype: "F32", shape: [0, 7] },
        },
        { metadata: { format: "pt" }, pad: 4096 },
      ),
    });
    const path = join(folder, "model.safetensors");
    const checkpoint = await openCheckpoint(path);
    expect(checkpoint).toMatchObject({ path, kind: "file", indexFile: undefined, tensorCount: 4, byteLength: 22, parameterCount: 11 });
    expect([...checkpoint.metadata]).toEqual([["format", "pt"]]);
    const [shard] = checkpoint.shards;
    expect(shard).toMatchObject({ index: 0, file: path, name: "model.safetensors", byteLength: 4118, dataOffset: 4096, tensorCount: 4 });
    expect([...checkpoint.tensors.values()]).toEqual([
      { name: "w", dtype: "BF16", shape: [2, 3], byteLength: 12, offset: 4096, shard },
      { name: "", dtype: "F4", shape: [4], byteLength: 2, offset: 4108, shard },
      { name: "größe", dtype: "I64", shape: [], byteLength: 8, offset: 4110, shard },
      { name: "none", dtype: "F32", shape: [0, 7], byteLength: 0, offset: 4118, shard },
    ]);
    expect(checkpoint.tensors.get("größe")).toBe(checkpoint.tensors.get("größe"));
    expect(checkpoint.tensors.get("gr")).toBeUndefined();
  });

  it("is deeply frozen", async () => {
    const checkpoint = await openCheckpoint(join(folderOf({ a: bytes("w") }), "a"));
    const info = checkpoint.tensors.get("w");
    expect([checkpoint, checkpoint.shards, checkpoint.shards[0], info, info?.shape].every(Object.isFrozen)).toBe(true);
  });

  it("finds names by their exact text", async () => {
    const folder = folderOf({
      a: buildSafetensors(Object.fromEntries(["\ufffd", "\ufeffbom", "a\0b"].map((name) => [name, { dtype: "U8", shape: [1] }]))),
    });
    const { tensors } = await openCheckpoint(join(folder, "a"));
    expect([...tensors.keys()]).toEqual(["\ufffd", "\ufeffbom", "a\0b"]);
    expect([...tensors.keys()].every((name) => tensors.get(name)?.name === name)).toBe(true);
    expect(["\ud800", "bom", "a", "toString"].some((name) => tensors.has(name))).toBe(false);
    expect(tensors.has(undefined as unknown as string)).toBe(false);
  });

  it("may hold no tensors", async () => {
    const checkpoint = await openCheckpoint(join(folderOf({ a: buildSafetensors({}) }), "a"));
    expect(checkpoint).toMatchObject({ tensorCount: 0, byteLength: 0, parameterCount: 0 });
    expect([...checkpoint.tensors]).toEqual([]);
  });

  it("rejects with code and facts, and leaves no descriptor", async () => {
    const folder = folderOf({ a: Buffer.concat([bytes("w"), Buffer.alloc(3)]) });
    const { descriptors } = processCounters();
    for (let i = 0; i < 20; i++) {
      const error = await refused(openCheckpoint(join(folder, "a")));
      expect(error).toMatchObject({ code: "ERR_CHECKPOINT_TRAILING_BYTES", file: join(folder, "a") });
    }
    await collectGarbage();
    expect(processCounters().descriptors).toBe(descriptors);
  });

  it("names the tensor at fault", async () => {
    const folder = folderOf({ a: rawHeader('{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}') });
    expect(await refused(openCheckpoint(join(folder, "a")))).toMatchObject({
      code: "ERR_CHECKPOINT_SIZE_MISMATCH",
      tensor: "w",
      dtype: "F32",
      shape: "[2]",
      expectedBytes: 8,
      actualBytes: 4,
    });
  });

  it.each([
    ["version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "ERR_CHECKPOINT_HEADER_TOO_LARGE", /git lfs pull/],
    ["<!DOCTYPE html><html></html>", "ERR_CHECKPOINT_HEADER_TOO_LARGE", /HTML page/],
    ["", "ERR_CHECKPOINT_FILE_TOO_SMALL", /empty/],
    ["../../blobs/06c406e9de08b175e86d", "ERR_CHECKPOINT_HEADER_TOO_LARGE", /symbolic link/],
  ])("recognises %j", async (text, code, words) => {
    const error = await refused(openCheckpoint(join(folderOf({ a: text }), "a")));
    expect(error.code).toBe(code);
    expect(error.message).toMatch(words);
  });
});

describe("paths", () => {
  it.each(["模型 目录", "dir_💾", "café", "100%25", `quote'"$HOME`, "-dash", "a#b?c", "new\nline"])(
    "opens %j by path and URL",
    async (name) => {
      const folder = folderOf({ [`${name}/model.safetensors`]: bytes("w") });
      expect(await names(join(folder, name))).toEqual(["w"]);
      expect(await names(relative(process.cwd(), join(folder, name, "model.safetensors")))).toEqual(["w"]);
      expect(await names(pathToFileURL(join(folder, name)))).toEqual(["w"]);
      expect(await names(pathToFileURL(join(folder, name, "model.safetensors")).href)).toEqual(["w"]);
    },
  );

  it.each([
    "https://huggingface.co/org/name",
    "s3://bucket/key",
    "hf://org/name",
    new URL("http://localhost/x"),
    "file://host/x",
    "file:///a%2Fb",
  ])("refuses %s", async (url) => {
    expect(await refused(openCheckpoint(url))).toMatchObject({ code: "ERR_CHECKPOINT_URL_UNSUPPORTED" });
  });

  it.each(["", "a\0b", undefined, 7])("refuses %j as a path", async (path) => {
    await expect(openCheckpoint(path as string)).rejects.toMatchObject({ code: "ERR_OPTION_INVALID", option: "path" });
  });

  it("tells what is not there", async () => {
    const folder = folderOf({ file: bytes("w") });
    symlinkSync("nowhere", join(folder, "dangling"));
    symlinkSync("loop", join(folder, "loop"));
    expect(await refused(openCheckpoint(join(folder, "none")))).toMatchObject({ code: "ERR_CHECKPOINT_NOT_FOUND", errno: "ENOENT" });
    expect(await refused(openCheckpoint(join(folder, "file/below")))).toMatchObject({ code: "ERR_CHECKPOINT_NOT_FOUND", errno: "ENOTDIR" });
    expect((await refused(openCheckpoint(join(folder, "dangling")))).message).toMatch(/leads to nowhere/);
    expect(await refused(openCheckpoint(join(folder, "loop")))).toMatchObject({ code: "ERR_CHECKPOINT_IO", errno: "ELOOP" });
    expect(await refused(openCheckpoint("/dev/zero"))).toMatchObject({ code: "ERR_CHECKPOINT_NOT_REGULAR" });
  });
});

describe("an index", () => {
  const shards = {
    "1.safetensors": bytes("a"),
    "2.safetensors": buildSafetensors({ a: { dtype: "U8", shape: [9] }, b: { dtype: "I8", shape: [] } }),
  };

  it("says which shard a tensor is loaded from, and what is loaded at all", async () => {
    const folder = folderOf({
      ...shards,
      "model.safetensors.index.json": { b: "2.safetensors", a: "1.safetensors" },
      "other.safetensors": bytes("c"),
    });
    for (const path of [folder, join(folder, "model.safetensors.index.json")]) {
      const checkpoint = await openCheckpoint(path);
      expect(checkpoint.indexFile).toBe(join(folder, "model.safetensors.index.json"));
      expect(checkpoint.shards.map(({ name, tensorCount }) => [name, tensorCount])).toEqual([
        ["2.safetensors", 1],
        ["1.safetensors", 1],
      ]);
      expect([...checkpoint.tensors.values()].map(({ name, byteLength, shard }) => [name, byteLength, shard.name])).toEqual([
        ["b", 1, "2.safetensors"],
        ["a", 4, "1.safetensors"],
      ]);
      expect(checkpoint.byteLength).toBe(5);
    }
  });

  it("may name shards in folders below, and one file in two spellings", async () => {
    const folder = folderOf({
      "below/part..v2.safetensors": buildSafetensors({ a: { dtype: "U8", shape: [1] }, b: { dtype: "U8", shape: [1] } }),
      "model.safetensors.index.json": { a: "below/part..v2.safetensors", b: "./below/part..v2.safetensors" },
    });
    const { shards, tensorCount } = await openCheckpoint(folder);
    expect([shards.map(({ name }) => name), tensorCount]).toEqual([["below/part..v2.safetensors"], 2]);
  });

  it("may be made of symbolic links, as the Hub's cache is", async () => {
    const folder = folderOf({
      "blobs/1": bytes("a"),
      "blobs/2": JSON.stringify({ weight_map: { a: "model-00001-of-00001.safetensors" } }),
    });
    const snapshot = join(folder, "snapshots/abc");
    mkdirSync(snapshot, { recursive: true });
    symlinkSync("../../blobs/1", join(snapshot, "model-00001-of-00001.safetensors"));
    symlinkSync("../../blobs/2", join(snapshot, "model.safetensors.index.json"));
    symlinkSync("snapshots/abc", join(folder, "link"));
    expect(await names(snapshot)).toEqual(["a"]);
    expect(await names(join(folder, "link"))).toEqual(["a"]);
    expect((await openCheckpoint(snapshot)).shards[0]?.file).toBe(join(snapshot, "model-00001-of-00001.safetensors"));
  });

  it.each(["../x.safetensors", "below/../../x.safetensors", "/etc/passwd", "..", "a\\b", "C:x", "below/.."])(
    "must not name %j",
    async (shard) => {
      const folder = folderOf({ "in/model.safetensors.index.json": { a: shard }, "x.safetensors": bytes("a") });
      const error = await refused(openCheckpoint(join(folder, "in")));
      expect(error).toMatchObject({ code: "ERR_CHECKPOINT_INDEX_PATH_ESCAPE", shard });
    },
  );

  it.each([".", "./", "below/", "x\0.safetensors", ""])("must not name %j, which is no file", async (shard) => {
    const folder = folderOf({ "model.safetensors.index.json": { a: shard } });
    expect(await refused(openCheckpoint(folder))).toMatchObject({ code: "ERR_CHECKPOINT_INDEX_INVALID" });
  });

  it.each([
    ["{", "ERR_CHECKPOINT_INDEX_INVALID"],
    ["[]", "ERR_CHECKPOINT_INDEX_INVALID"],
    ["{}", "ERR_CHECKPOINT_INDEX_INVALID"],
    ['{"weight_map":{}}', "ERR_CHECKPOINT_INDEX_INVALID"],
    ['{"weight_map":{"a":1}}', "ERR_CHECKPOINT_INDEX_INVALID"],
    ['{"weight_map":{"a":"1.safetensors","a":"2.safetensors"}}', "ERR_CHECKPOINT_DUPLICATE_KEY"],
    ['{"weight_map":{"b":"1.safetensors"}}', "ERR_CHECKPOINT_INDEX_TENSOR_MISSING"],
    ['{"weight_map":{"a":"1.safetensors","z":"3.safetensors"}}', "ERR_CHECKPOINT_SHARD_MISSING"],
  ])("%s ends in %s, never in a guess", async (text, code) => {
    const folder = folderOf({ ...shards, "model.safetensors": bytes("guess"), "model.safetensors.index.json": text });
    expect(await refused(openCheckpoint(folder))).toMatchObject({ code });
  });

  it("that cannot be opened is an error, too", async () => {
    const folder = folderOf(shards);
    symlinkSync("nowhere", join(folder, "model.safetensors.index.json"));
    expect(await refused(openCheckpoint(folder))).toMatchObject({ code: "ERR_CHECKPOINT_NOT_FOUND" });
    const other = folderOf({ ...shards, "model.safetensors.index.json/x": "" });
    expect(await refused(openCheckpoint(other))).toMatchObject({ code: "ERR_CHECKPOINT_NOT_REGULAR" });
  });
});

describe("a folder", () => {
  const family = (stem: string, tensors: readonly string[]) =>
    Object.fromEntries(tensors.map((name, i) => [`${stem}-0000${i + 1}-of-0000${tensors.length}.safetensors`, bytes(name)]));

  it("without an index is one file or one complete family", async () => {
    expect(
      await names(folderOf({ "odd.safetensors": bytes("a"), "._odd.safetensors": "Mac", "original/model.safetensors": bytes("z") })),
    ).toEqual(["a"]);
    const checkpoint = await openCheckpoint(folderOf(family("model", ["c", "b", "a"])));
    expect([...checkpoint.tensors.keys()]).toEqual(["c", "b", "a"]);
    expect(checkpoint).toMatchObject({ kind: "folder", indexFile: undefined });
  });

  it("merges metadata, the first shard first", async () => {
    const shard = (name: string, metadata: Record<string, string>) =>
      buildSafetensors({ [name]: { dtype: "U8", shape: [1] } }, { metadata });
    const { metadata } = await openCheckpoint(
      folderOf({ "m-1-of-2.safetensors": shard("a", { k: "1", x: "1" }), "m-2-of-2.safetensors": shard("b", { k: "2", y: "2" }) }),
    );
    expect(Object.fromEntries(metadata)).toEqual({ k: "1", x: "1", y: "2" });
  });

  it("must not hold a name twice where no index decides", async () => {
    const folder = folderOf(family("model", ["a", "a"]));
    expect(await refused(openCheckpoint(folder))).toMatchObject({
      code: "ERR_CHECKPOINT_DUPLICATE_TENSOR",
      tensor: "a",
      otherFile: join(folder, "model-00001-of-00002.safetensors"),
    });
  });

  it("must have its family complete", async () => {
    const folder = folderOf({ "model-00001-of-00003.safetensors": bytes("a"), "model-00003-of-00003.safetensors": bytes("c") });
    expect(await refused(openCheckpoint(folder))).toMatchObject({
      code: "ERR_CHECKPOINT_SHARD_MISSING",
      file: join(folder, "model-00002-of-00003.safetensors"),
      missing: 1,
      shards: 3,
    });
    const extra = folderOf({ ...family("model", ["a", "b"]), "model-00000-of-00002.safetensors": bytes("z") });
    expect(await refused(openCheckpoint(extra))).toMatchObject({ code: "ERR_CHECKPOINT_AMBIGUOUS" });
  });

  it("with several families asks which, and takes the answer", async () => {
    const folder = folderOf({
      ...family("model", ["a", "b"]),
      "consolidated.safetensors": bytes("c"),
      "model.fp16.safetensors": bytes("h"),
    });
    const error = await refused(openCheckpoint(folder));
    expect(error).toMatchObject({
      code: "ERR_CHECKPOINT_AMBIGUOUS",
      option: "weights",
      choices: ["consolidated.safetensors", "model.fp16.safetensors", "model-*-of-00002.safetensors"],
    });
    expect(error.message).toContain("consolidated.safetensors, model.fp16.safetensors, model-*-of-00002.safetensors");
    expect(await names(folder, "model")).toEqual(["a", "b"]);
    expect(await names(folder, "model-*-of-00002.safetensors")).toEqual(["a", "b"]);
    expect(await names(folder, "model-00002-of-00002.safetensors")).toEqual(["b"]);
    expect(await names(folder, "model.fp16")).toEqual(["h"]);
    expect(await names(folder, "consolidated.safetensors")).toEqual(["c"]);
    expect(await refused(openCheckpoint(folder, { weights: "nothing" }))).toMatchObject({
      code: "ERR_CHECKPOINT_NOT_FOUND",
      option: "weights",
    });
  });

  it("takes another index if that names all weights there", async () => {
    const index = {
      "consolidated.safetensors.index.json": { a: "consolidated-00001-of-00001.safetensors" },
      ...family("consolidated", ["a"]),
    };
    expect(await names(folderOf(index))).toEqual(["a"]);
    const folder = folderOf({ ...index, "model-00001-of-00001.safetensors": bytes("b") });
    expect(await refused(openCheckpoint(folder))).toMatchObject({
      code: "ERR_CHECKPOINT_AMBIGUOUS",
      choices: ["consolidated.safetensors.index.json", "model-00001-of-00001.safetensors"],
    });
    expect(await names(folder, "consolidated")).toEqual(["a"]);
    expect(await names(folder, "model")).toEqual(["b"]);
  });

  it("without weights says what it looked for", async () => {
    const error = await refused(openCheckpoint(folderOf({ "pytorch_model.bin": "PK", "pytorch_model.bin.index.json": "{}", "sub/x": "" })));
    expect(error.code).toBe("ERR_CHECKPOINT_NOT_FOUND");
    expect(error.message).toMatch(
      /looked for model\.safetensors\.index\.json.*other formats are there: pytorch_model\.bin, pytorch_model\.bin\.index\.json; folders below are not searched: sub$/,
    );
    expect(await refused(openCheckpoint(temporaryFolder()))).toMatchObject({ code: "ERR_CHECKPOINT_NOT_FOUND" });
    const named = folderOf({ "model.safetensors/x": "" });
    expect(await refused(openCheckpoint(named))).toMatchObject({ code: "ERR_CHECKPOINT_NOT_REGULAR" });
  });

  it("is needed for the option weights", async () => {
    const folder = folderOf({ "a.safetensors": bytes("a") });
    await expect(openCheckpoint(join(folder, "a.safetensors"), { weights: "a" })).rejects.toMatchObject({ code: "ERR_OPTION_CONFLICT" });
    await expect(openCheckpoint(folder, { weights: "" })).rejects.toMatchObject({ code: "ERR_OPTION_INVALID" });
    await expect(openCheckpoint(folder, { weights: "sub/a" })).rejects.toMatchObject({ code: "ERR_OPTION_INVALID" });
  });
});

describe("an AbortSignal", () => {
  it("rejects with an error whose cause is its reason, before and meanwhile", async () => {
    const folder = folderOf({ "a.safetensors": bytes("a") });
    const reason = new Error("enough");
    await expect(openCheckpoint(folder, { signal: AbortSignal.abort(reason) })).rejects.toMatchObject({
      code: "ERR_ABORTED",
      cause: reason,
    });
    const controller = new AbortController();
    const opening = openCheckpoint(folder, { signal: controller.signal });
    controller.abort(reason);
    await expect(opening).rejects.toMatchObject({ code: "ERR_ABORTED", cause: reason });
    const signal = new AbortController().signal;
    expect((await openCheckpoint(folder, { signal })).tensorCount).toBe(1);
  });
});
