import { createHash } from "node:crypto";
import { symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { certainLeftover, leftoverOf } from "../../src/checkpoint/leftovers.js";
import { openCheckpoint } from "../../src/checkpoint/open.js";
import { folderOf } from "../support/folders.js";
import { buildSafetensors } from "../support/safetensors.js";

const whole = buildSafetensors({ w: { dtype: "U8", shape: [4] } });
const index = (...files: string[]) => JSON.stringify({ weight_map: Object.fromEntries(files.map((file, i) => [`t${i}`, file])) });

function unfinished(file: string, leftover: string, tool: string) {
  return { code: "ERR_CHECKPOINT_DOWNLOAD_UNFINISHED", file, leftover, tool: expect.stringContaining(tool) };
}

describe("names of left-overs", () => {
  it.each([
    ["model.safetensors.part", "model.safetensors", "Firefox"],
    ["model.safetensors.crdownload", "model.safetensors", "Chrome"],
    ["model.safetensors.opdownload", "model.safetensors", "Opera"],
    ["model.safetensors.download", "model.safetensors", "Safari"],
    ["model.safetensors.incomplete", "model.safetensors", "huggingface_hub"],
    ["model.safetensors.aria2", "model.safetensors", "aria2"],
    ["model.safetensors.lftp-pget-status", "model.safetensors", "lftp"],
    ["model.safetensors.st", "model.safetensors", "axel"],
    ["model.safetensors.partial", "model.safetensors", "rclone"],
    ["model.safetensors.1a2b3c4d.partial", "model.safetensors", "rclone"],
    ["model.safetensors.filepart", "model.safetensors", "WinSCP"],
    ["model.safetensors.part.minio", "model.safetensors", "MinIO"],
    ["model.safetensors.!qB", "model.safetensors", "BitTorrent"],
    ["model.safetensors_.gstmp", "model.safetensors", "gsutil"],
    [".azDownload-2c3e5f00-11aa-model.safetensors", "model.safetensors", "AzCopy"],
  ])("%s is that of %s by %s", (name, target, tool) => {
    expect(certainLeftover(name)).toMatchObject({ target, tool: expect.stringContaining(tool) });
  });

  it.each([
    [".model.safetensors.aB3xY9", "rsync"],
    ["model.safetensors.8A3f01cD", "AWS CLI"],
    ["model.safetensors.tmp", "under another name first"],
    ["model.safetensors.dvc", "DVC"],
  ])("%s may be that of %s", (name, tool) => {
    expect(leftoverOf(name)).toMatchObject({ target: "model.safetensors", tool: expect.stringContaining(tool) });
    expect(certainLeftover(name)).toBeUndefined();
  });

  it.each(["model.safetensors", "model.safetensors.index.json", "weights.st", "a.json", "part", "model.safetensors.sha256"])(
    "%s is none",
    (name) => {
      expect(leftoverOf(name)).toBeUndefined();
    },
  );
});

describe("a download that is unfinished is told", () => {
  it.each([
    ["part", "Firefox"],
    ["crdownload", "Chrome"],
    ["incomplete", "huggingface_hub"],
    ["aria2", "aria2"],
    ["partial", "rclone"],
    ["!qB", "BitTorrent"],
    ["tmp", "another name"],
    ["8A3f01cD", "AWS CLI"],
  ])("where .%s takes the place of the file", async (ending, tool) => {
    const folder = folderOf({ [`model.safetensors.${ending}`]: whole, "config.json": "{}" });
    const missing = join(folder, "model.safetensors");
    const expected = { code: "ERR_CHECKPOINT_DOWNLOAD_UNFINISHED", leftover: `${missing}.${ending}`, tool: expect.stringContaining(tool) };
    await expect(openCheckpoint(folder)).rejects.toMatchObject(expected);
    await expect(openCheckpoint(missing)).rejects.toMatchObject({ ...expected, file: missing });
  });

  it("where rsync still writes under a hidden name, or into its own folder", async () => {
    const hidden = folderOf({ ".model.safetensors.aB3xY9": whole });
    await expect(openCheckpoint(join(hidden, "model.safetensors"))).rejects.toMatchObject({
      code: "ERR_CHECKPOINT_DOWNLOAD_UNFINISHED",
      leftover: join(hidden, ".model.safetensors.aB3xY9"),
    });
    const partial = folderOf({ ".rsync-partial/model.safetensors": whole });
    await expect(openCheckpoint(partial)).rejects.toMatchObject(
      unfinished(partial, join(partial, ".rsync-partial/model.safetensors"), "rsync"),
    );
  });

  it.each(["model.safetensors.part", "0123abcd.incomplete", "model.safetensors.crdownload"])(
    "where %s itself is given, even if its length is right",
    async (name) => {
      const file = join(folderOf({ [name]: whole }), name);
      const error = await openCheckpoint(file).catch((reason) => reason);
      expect(error).toMatchObject({ code: "ERR_CHECKPOINT_DOWNLOAD_UNFINISHED", file });
      expect(error.message).toMatch(/the download is unfinished: this is what .* leaves until it is done; to finish it, .*, or rename/);
    },
  );

  it.each([".aria2", ".lftp-pget-status", ".st"])("where %s is beside a file of full length", async (ending) => {
    const folder = folderOf({ "model.safetensors": whole, [`model.safetensors${ending}`]: "" });
    const file = join(folder, "model.safetensors");
    for (const path of [folder, file]) {
      await expect(openCheckpoint(path)).rejects.toMatchObject({
        code: "ERR_CHECKPOINT_DOWNLOAD_UNFINISHED",
        file,
        message: expect.stringContaining(`; if the file is complete, remove that one`),
      });
    }
  });

  it("where one of many shards in a folder below has one", async () => {
    const shards = Array.from({ length: 9 }, (_, i) => `below/${i}.safetensors`);
    const files = shards.map((name, i) => [name, buildSafetensors({ [`t${i}`]: { dtype: "U8", shape: [1] } })]);
    const folder = folderOf({ ...Object.fromEntries(files), "model.safetensors.index.json": index(...shards) });
    await expect(openCheckpoint(folder)).resolves.toMatchObject({ tensorCount: 9 });
    writeFileSync(join(folder, "below/7.safetensors.aria2"), "");
    await expect(openCheckpoint(folder)).rejects.toMatchObject(
      unfinished(join(folder, "below/7.safetensors"), join(folder, "below/7.safetensors.aria2"), "aria2"),
    );
  });

  it("where a browser keeps the place with an empty file", async () => {
    const folder = folderOf({ "model.safetensors": "", "model.safetensors.part": whole });
    const error = await openCheckpoint(folder).catch((reason) => reason);
    expect(error).toMatchObject(unfinished(join(folder, "model.safetensors"), join(folder, "model.safetensors.part"), "Firefox"));
    expect(error.cause).toMatchObject({ code: "ERR_CHECKPOINT_FILE_TOO_SMALL" });
  });

  it("for a shard of a family and for one that an index names", async () => {
    const family = { "m-1-of-3.safetensors": whole, "m-2-of-3.safetensors.crdownload": whole };
    const second = ["m-2-of-3.safetensors", "m-2-of-3.safetensors.crdownload"] as const;
    const folder = folderOf(family);
    await expect(openCheckpoint(folder)).rejects.toMatchObject(unfinished(join(folder, second[0]), join(folder, second[1]), "Chrome"));
    const indexed = folderOf({ ...family, "m.safetensors.index.json": index("m-1-of-3.safetensors", "m-2-of-3.safetensors") });
    await expect(openCheckpoint(indexed)).rejects.toMatchObject(unfinished(join(indexed, second[0]), join(indexed, second[1]), "Chrome"));
  });

  it("in the Hub's cache, with the command that goes on", async () => {
    const folder = folderOf({ "models--org--name/blobs/ab12.incomplete": whole, "models--org--name/snapshots/r1/config.json": "{}" });
    const snapshot = join(folder, "models--org--name/snapshots/r1");
    symlinkSync(snapshot, join(folder, "link"));
    for (const path of [snapshot, join(folder, "link"), join(snapshot, "model.safetensors")]) {
      await expect(openCheckpoint(path)).rejects.toMatchObject({
        code: "ERR_CHECKPOINT_DOWNLOAD_UNFINISHED",
        leftover: join(folder, "models--org--name/blobs/ab12.incomplete"),
        message: expect.stringContaining("run `hf download org/name` again"),
      });
    }
  });

  it("in the folder of `hf download --local-dir`, where the very file is named by a hash", async () => {
    const hash = createHash("sha1").update("b.safetensors.metadata").digest("base64url");
    const padded = `${hash}=`;
    const folder = folderOf({
      "unet/model.safetensors.index.json": index("a.safetensors", "b.safetensors"),
      "unet/a.safetensors": buildSafetensors({ t0: { dtype: "U8", shape: [1] } }),
      ".cache/huggingface/download/0000.etag.incomplete": "",
      [`.cache/huggingface/download/unet/${padded}.etag.incomplete`]: "",
    });
    await expect(openCheckpoint(join(folder, "unet"))).rejects.toMatchObject(
      unfinished(
        join(folder, "unet/b.safetensors"),
        join(folder, `.cache/huggingface/download/unet/${padded}.etag.incomplete`),
        "huggingface_hub",
      ),
    );
  });

  it("in ModelScope's folder", async () => {
    const folder = folderOf({ "config.json": "{}", "._____temp/model.safetensors": whole });
    await expect(openCheckpoint(folder)).rejects.toMatchObject(
      unfinished(folder, join(folder, "._____temp/model.safetensors"), "ModelScope"),
    );
  });

  it("where git-annex has a link without its object", async () => {
    const folder = folderOf({});
    symlinkSync(".git/annex/objects/xx/yy/key", join(folder, "model.safetensors"));
    await expect(openCheckpoint(folder)).rejects.toMatchObject({
      code: "ERR_CHECKPOINT_DOWNLOAD_UNFINISHED",
      message: expect.stringContaining("git annex get"),
    });
  });

  it("and other weights may be picked instead", async () => {
    const folder = folderOf({ "model.safetensors.part": whole, "vae.safetensors": whole });
    const error = await openCheckpoint(folder).catch((reason) => reason);
    expect(error.message).toMatch(/pick other weights with the option weights: vae\.safetensors$/);
    await expect(openCheckpoint(folder, { weights: "vae.safetensors" })).resolves.toMatchObject({ tensorCount: 1 });
  });
});

describe("a left-over is no matter", () => {
  it.each([
    ["beside the finished file", { "model.safetensors": whole, "model.safetensors.part": "", ".model.safetensors.aB3xY9": "" }],
    ["of other weights", { "model.safetensors": whole, "lora.safetensors.crdownload": "", "lora.safetensors.aria2": "" }],
    ["of weights without the standard name", { "vae.safetensors": whole, "lora.safetensors.part": "" }],
    ["of what are no weights", { "model.safetensors": whole, "README.md.part": "", "tokenizer.json.aria2": "" }],
    ["of the Hub's download of other files", { "model.safetensors": whole, ".cache/huggingface/download/x.incomplete": "" }],
    ["of an index of other weights", { "vae.safetensors": whole, "old.safetensors.index.json.part": "" }],
  ])("%s", async (_, files) => {
    await expect(openCheckpoint(folderOf(files))).resolves.toMatchObject({ tensorCount: 1 });
  });

  it("for a file that is broken in another way", async () => {
    const folder = folderOf({ "model.safetensors": Buffer.concat([whole, Buffer.alloc(1)]), "model.safetensors.part": "" });
    await expect(openCheckpoint(folder)).rejects.toMatchObject({ code: "ERR_CHECKPOINT_TRAILING_BYTES" });
  });
});
