import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import { dtypes } from "../../src/checkpoint/dtype.js";
import type { LoadOptions } from "../../src/loader/options.js";
import type { Tensors } from "./loading.js";
import { buildSafetensors, dataStartOf, writeIndex } from "./safetensors.js";

/**
 * One checkpoint and the way to load it; every driver must bring exactly the bytes that the files
 * hold.
 */
export interface Input {
  readonly shards: readonly Tensors[];
  readonly options?: LoadOptions;
  /** The data starts at an odd file offset. */
  readonly odd?: boolean;
  /** Bytes of the last file beyond a multiple of 512. */
  readonly tail?: number;
  /** Names that the options leave. Default: all. */
  readonly left?: readonly string[];
}

export const KIB = 1024;
export const MIB = 1024 * KIB;

function bytes(length: number): Tensors[string] {
  return { dtype: "U8", shape: [length] };
}

function many(count: number, length: (index: number) => number): Tensors {
  return Object.fromEntries(Array.from({ length: count }, (_, index) => [`layers.${index}.weight`, bytes(length(index))]));
}

export const inputs: Readonly<Record<string, Input>> = {
  "all 22 dtypes": { shards: [Object.fromEntries(dtypes.map(({ name }) => [`t.${name}`, { dtype: name, shape: [4, 2, 3] }]))] },
  "data that starts at an odd offset": {
    shards: [{ odd: { dtype: "U8", shape: [5000] }, floats: { dtype: "F32", shape: [30_000] }, last: bytes(300 * KIB) }],
    odd: true,
  },
  "packed data that starts at an odd offset": {
    shards: [{ odd: { dtype: "F32", shape: [30_000] }, more: bytes(2 * MIB), last: bytes(300 * KIB) }],
    odd: true,
    options: { placement: "packed" },
  },
  "scalars and empty tensors among others": {
    shards: [
      {
        scalar: { dtype: "F64", shape: [] },
        nothing: { dtype: "F32", shape: [0] },
        byte: { dtype: "BOOL", shape: [] },
        "nothing either": { dtype: "BF16", shape: [7, 0, 2] },
        rest: bytes(4097),
      },
    ],
  },
  "empty tensors only": { shards: [{ a: { dtype: "F32", shape: [0] }, b: { dtype: "I64", shape: [0, 3] } }] },
  "no tensors": { shards: [{}] },
  "thousands of small tensors": { shards: [many(3000, (index) => 1 + ((index * 7919) % 400))] },
  "one tensor of many chunks": { shards: [{ large: bytes(5 * MIB + 13) }], options: { maxChunkBytes: 64 * KIB } },
  "large and small tensors by turns": { shards: [many(40, (index) => (index % 8 === 0 ? 700 * KIB + index : 33 * index + 1))] },
  "aligned placement at 256": {
    shards: [many(60, (index) => (index % 20 === 0 ? 300 * KIB + 511 : 511 + index))],
    options: { placement: "aligned", alignmentBytes: 256 },
  },
  "aligned placement at a page, odd data start": {
    shards: [{ odd: bytes(200_001), even: bytes(900_000), small: bytes(3) }],
    odd: true,
    options: { placement: "aligned", alignmentBytes: 4096 },
  },
  "a tail of 511 bytes": { shards: [{ head: bytes(1 * MIB), tail: bytes(2 * MIB + 500) }], tail: 511 },
  "a tail of one byte": { shards: [{ head: bytes(1 * MIB), tail: bytes(2 * MIB + 500) }], tail: 1 },
  "several shards": {
    shards: [many(5, (index) => 100 * KIB * index), { "in the second": bytes(1 * MIB + 1) }, { "in the third": bytes(10) }],
  },
  "a selection that leaves holes": {
    shards: [many(20, (index) => 1000 + index * 20_000), { untouched: bytes(100) }],
    options: { include: "layers.*", exclude: ["layers.3.*", "layers.4.*", "layers.19.*", "layers.0.*"] },
    left: Array.from({ length: 20 }, (_, index) => `layers.${index}.weight`).filter((_, index) => ![0, 3, 4, 19].includes(index)),
  },
  "a selection of every other tensor, packed": {
    shards: [many(200, (index) => 100 + index * 37)],
    options: { include: (name: string) => Number(name.split(".")[1]) % 2 === 1, placement: "packed" },
    left: Array.from({ length: 100 }, (_, index) => `layers.${2 * index + 1}.weight`),
  },
};

/** Path, files and expected bytes of an input that was written. */
export interface Written {
  readonly path: string;
  readonly files: readonly string[];
  readonly expected: ReadonlyMap<string, Buffer>;
}

/** Writes the checkpoint of an input into a folder. */
export function writeInput(folder: string, title: string): Written {
  const { shards, odd, tail, left } = inputs[title] ?? { shards: [] };
  const base = join(folder, title.replaceAll(/\W+/g, "-"));
  const expected = new Map<string, Buffer>();
  const weightMap: Record<string, string> = {};
  const files = shards.map((tensors, index) => {
    let content = buildSafetensors(tensors, odd ? { pad: 1 } : {});
    // Metadata of this form adds 25 bytes.
    if (odd && dataStartOf(content) % 2 === 0) content = buildSafetensors(tensors, { pad: 1, metadata: { k: "v" } });
    if (odd) expect(dataStartOf(content) % 2).toBe(1);
    if (tail !== undefined) {
      const [last = ""] = Object.keys(tensors).slice(-1);
      const length = Number(tensors[last]?.shape[0]);
      content = buildSafetensors({ ...tensors, [last]: bytes(length + ((512 + tail - (content.length % 512)) % 512)) });
      expect(content.length % 512).toBe(tail);
    }
    const file = `${base}-${index}.safetensors`;
    writeFileSync(file, content);
    for (const name of Object.keys(tensors)) weightMap[name] = file.slice(folder.length + 1);
    // An own reading of the header, the plainest there is.
    const dataStart = dataStartOf(content);
    const { __metadata__, ...header } = JSON.parse(content.subarray(8, dataStart).toString());
    for (const [name, { data_offsets }] of Object.entries<{ data_offsets: [number, number] }>(header)) {
      const [begin, end] = data_offsets;
      if (left === undefined || left.includes(name)) expected.set(name, content.subarray(dataStart + begin, dataStart + end));
    }
    return file;
  });
  const [first = ""] = files;
  if (files.length === 1) return { path: first, files, expected };
  writeIndex(`${base}.index.json`, weightMap);
  return { path: `${base}.index.json`, files, expected };
}
