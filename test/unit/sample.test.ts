import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { leastSampleBytes, sampleShapes, sampleTensors } from "../../src/sample/shapes.js";
import { writeSample } from "../../src/sample/write-sample.js";
import { temporaryFolder } from "../support/folders.js";

/** Header of a safetensors file, read by hand. */
function headerOf(file: string) {
  const bytes = readFileSync(file);
  const length = Number(bytes.readBigUInt64LE());
  return { length, bytes, header: JSON.parse(bytes.subarray(8, 8 + length).toString()) as Record<string, Entry> };
}

interface Entry {
  readonly dtype: string;
  readonly shape: number[];
  readonly data_offsets: [number, number];
}

describe("sampleTensors", () => {
  it("has the proportions of Llama 3 8B at its size", () => {
    const tensors = sampleTensors("llama", 16_060_522_496);
    expect(tensors).toHaveLength(291);
    const shapes = Object.fromEntries(tensors.map(({ name, shape }) => [name, shape]));
    expect(shapes["model.layers.31.mlp.gate_proj.weight"]).toEqual([14336, 4096]);
    expect(shapes["model.layers.0.self_attn.k_proj.weight"]).toEqual([1024, 4096]);
    expect(shapes["model.layers.0.input_layernorm.weight"]).toEqual([4096]);
    expect(shapes["lm_head.weight"]).toEqual([128256, 4096]);
  });

  it("has 3,050 small tensors, or 8 large ones", () => {
    expect(sampleTensors("many-small", 256 * 2 ** 20)).toHaveLength(3050);
    const large = sampleTensors("few-large", 2 ** 30);
    expect(large.map(({ byteLength }) => byteLength)).toEqual(new Array(8).fill(2 ** 27));
  });

  it.each(sampleShapes)("comes close to the bytes asked for: %s", (shape) => {
    for (const bytes of [leastSampleBytes[shape], 3_000_000, 123_456_789, 2 ** 31]) {
      const tensors = sampleTensors(shape, bytes);
      const sum = tensors.reduce((total, { byteLength }) => total + byteLength, 0);
      expect(sum).toBeLessThanOrEqual(bytes);
      expect(sum).toBeGreaterThan(bytes * 0.99);
      expect(new Set(tensors.map(({ name }) => name)).size).toBe(tensors.length);
      for (const { shape: dims, byteLength } of tensors) {
        expect(dims.every((dim) => Number.isInteger(dim) && dim > 0)).toBe(true);
        expect(dims.reduce((product, dim) => product * dim, 2)).toBe(byteLength);
      }
    }
  });

  it.each([0, -1, 1.5, Number.NaN, 65535])("refuses %s bytes", (bytes) => {
    expect(() => sampleTensors("llama", bytes)).toThrow(expect.objectContaining({ code: "ERR_OPTION_INVALID", option: "bytes" }));
  });
});

describe("writeSample", () => {
  it("writes one file as the reference writer lays it out", async () => {
    const folder = temporaryFolder();
    const sample = await writeSample(folder, { shape: "llama", bytes: 100_000 });
    expect(sample.files).toEqual([join(folder, "model.safetensors")]);
    expect(sample.indexFile).toBeUndefined();
    const { length, bytes, header } = headerOf(join(folder, "model.safetensors"));
    const { __metadata__, ...entries } = header;
    expect(__metadata__).toEqual({ format: "pt" });
    expect(length % 8).toBe(0);
    const names = Object.keys(entries);
    expect(names).toHaveLength(sample.tensorCount);
    expect(names).toEqual([...names].sort());
    let end = 0;
    for (const { dtype, data_offsets } of Object.values(entries)) {
      expect([dtype, data_offsets[0]]).toEqual(["BF16", end]);
      end = data_offsets[1];
    }
    expect(bytes.length).toBe(8 + length + end);
    expect(end).toBe(sample.byteLength);
    expect(readdirSync(folder)).toEqual(["model.safetensors"]);
  });

  it("writes shards of about equal size and an index that names every tensor", async () => {
    const folder = temporaryFolder();
    const sample = await writeSample(folder, { shape: "many-small", bytes: 2 ** 20, shards: 4 });
    const index = JSON.parse(readFileSync(String(sample.indexFile), "utf8"));
    expect(index.metadata.total_size).toBe(sample.byteLength);
    expect(readdirSync(folder)).toEqual([
      "model-00001-of-00004.safetensors",
      "model-00002-of-00004.safetensors",
      "model-00003-of-00004.safetensors",
      "model-00004-of-00004.safetensors",
      "model.safetensors.index.json",
    ]);
    let seen = 0;
    for (const file of sample.files) {
      const { header, bytes, length } = headerOf(file);
      for (const name of Object.keys(header))
        if (name !== "__metadata__") expect(index.weight_map[name]).toBe(file.slice(folder.length + 1));
      seen += Object.keys(header).length - 1;
      expect(bytes.length - length).toBeGreaterThan(sample.byteLength / 8);
    }
    expect(seen).toBe(3050);
  });

  it("gives every tensor the same bytes for the same seed, whatever the shards", async () => {
    const digests = async (shards: number, seed: number) => {
      const sample = await writeSample(temporaryFolder(), { shape: "few-large", bytes: 8192, shards, seed });
      const list = sample.files.flatMap((file) => {
        const { header, bytes, length } = headerOf(file);
        return Object.entries(header)
          .filter(([name]) => name !== "__metadata__")
          .map(
            ([
              name,
              {
                data_offsets: [begin, end],
              },
            ]) => [
              name,
              createHash("sha256")
                .update(bytes.subarray(8 + length + begin, 8 + length + end))
                .digest("hex"),
            ],
          );
      });
      return Object.fromEntries(list) as Record<string, string>;
    };
    const one = await digests(1, 7);
    expect(await digests(8, 7)).toEqual(one);
    expect(await digests(1, 8)).not.toEqual(one);
    expect(new Set(Object.values(one)).size).toBe(8);
    // By OpenSSL: AES-128-CTR over 1024 zeros, key and counter the first halves of SHA-256 of
    // "seed 7" and of "name model....".
    expect(one["model.layers.0.mlp.experts.down_proj"]).toBe("7e2df538f8c53f6ab516e5efcaefa8233bf08429e59bb560d4677a4500bc3103");
  });

  it("refuses a folder with weights, replaces them with force", async () => {
    const folder = temporaryFolder();
    writeFileSync(join(folder, "other.safetensors"), "");
    const asked = { shape: "few-large", bytes: 4096 } as const;
    await expect(writeSample(folder, asked)).rejects.toMatchObject({ code: "ERR_SAMPLE_EXISTS", file: join(folder, "other.safetensors") });
    await writeSample(folder, { ...asked, force: true });
    expect(readdirSync(folder)).toEqual(["model.safetensors"]);
  });

  it("leaves nothing behind when it is aborted, and rejects with the reason", async () => {
    const folder = join(temporaryFolder(), "new");
    const controller = new AbortController();
    const reason = new Error("enough");
    const onProgress = () => controller.abort(reason);
    await expect(writeSample(folder, { shape: "llama", bytes: 10_000_000, signal: controller.signal, onProgress })).rejects.toBe(reason);
    expect(existsSync(folder)).toBe(false);
  });

  it("leaves nothing behind when it cannot be written", async () => {
    const folder = temporaryFolder();
    writeFileSync(join(folder, "file"), "");
    await expect(writeSample(join(folder, "file", "deeper"), { shape: "llama", bytes: 70_000 })).rejects.toMatchObject({
      code: "ERR_SAMPLE_WRITE",
      errno: "ENOTDIR",
    });
    mkdirSync(join(folder, "model.safetensors"));
    await expect(writeSample(folder, { shape: "llama", bytes: 70_000, force: true })).rejects.toMatchObject({ code: "ERR_SAMPLE_WRITE" });
    expect(existsSync(join(folder, "model.safetensors.partial"))).toBe(false);
  });

  it("makes the folders above", async () => {
    const folder = join(temporaryFolder(), "a", "..", "b", "c");
    expect((await writeSample(folder, { shape: "few-large", bytes: 8192 })).files).toHaveLength(1);
  });

  it("comes back from a file system that makes no folders", async () => {
    await expect(writeSample("/proc/none/deeper", { shape: "few-large", bytes: 8192 })).rejects.toMatchObject({
      code: "ERR_SAMPLE_WRITE",
      errno: "ENOENT",
    });
  });

  it("refuses what no disk has room for", async () => {
    const asked = { shape: "few-large", bytes: 2 ** 52 } as const;
    const folder = temporaryFolder();
    await expect(writeSample(folder, asked)).rejects.toMatchObject({ code: "ERR_SAMPLE_NO_SPACE" });
    await expect(writeSample(join(folder, "new"), asked)).rejects.toMatchObject({ code: "ERR_SAMPLE_NO_SPACE" });
    expect(readdirSync(folder)).toEqual([]);
  });

  it.each([
    [{ shards: 0 }, "shards"],
    [{ shards: 9 }, "shards"],
    [{ seed: -1 }, "seed"],
    [{ seed: 0.5 }, "seed"],
    [{ bytes: 10 }, "bytes"],
  ])("refuses %o", async (wrong, option) => {
    const asked = { shape: "few-large", bytes: 8192, ...wrong } as const;
    await expect(writeSample(temporaryFolder(), asked)).rejects.toMatchObject({ code: "ERR_OPTION_INVALID", option });
  });

  it("refuses a shape that does not exist", async () => {
    const asked = { shape: "gpt" as "llama", bytes: 8192 };
    await expect(writeSample(temporaryFolder(), asked)).rejects.toMatchObject({ code: "ERR_OPTION_UNKNOWN", option: "shape" });
  });
});
