import { createHash } from "node:crypto";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from "vitest";
import { dtypes } from "../../src/checkpoint/dtype.js";
import { openCheckpoint } from "../../src/checkpoint/open.js";
import { type DriverName, driverNames } from "../../src/envs.js";
import { loadCheckpoint } from "../../src/loader/load-checkpoint.js";
import type { LoadOptions } from "../../src/loader/options.js";
import { streamCheckpoint } from "../../src/loader/stream-checkpoint.js";
import { makeFolder } from "../support/folders.js";
import { evict, ioUringRefusal, type Tensors } from "../support/loading.js";
import { nixlLibrary, nixlMissing } from "../support/nixl.js";
import { buildSafetensors, pattern, writeIndex } from "../support/safetensors.js";

/** One checkpoint and the way to load it; every driver must bring exactly the bytes that the files hold. */
interface Input {
  readonly shards: readonly Tensors[];
  readonly options?: LoadOptions;
  /** The data starts at an odd file offset. */
  readonly odd?: boolean;
  /** Bytes of the last file beyond a multiple of 512. */
  readonly tail?: number;
  /** Names that the options leave. Default: all. */
  readonly left?: readonly string[];
}

const KIB = 1024;
const MIB = 1024 * KIB;

function bytes(length: number): Tensors[string] {
  return { dtype: "U8", shape: [length] };
}

function many(count: number, length: (index: number) => number): Tensors {
  return Object.fromEntries(Array.from({ length: count }, (_, index) => [`layers.${index}.weight`, bytes(length(index))]));
}

const inputs: Readonly<Record<string, Input>> = {
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
interface Written {
  readonly path: string;
  readonly files: readonly string[];
  readonly expected: ReadonlyMap<string, Buffer>;
}

const folder = makeFolder();
const written = new Map<string, Written>();

beforeAll(() => {
  for (const [title, input] of Object.entries(inputs)) written.set(title, write(title, input));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function write(title: string, { shards, odd, tail, left }: Input): Written {
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

function dataStartOf(content: Buffer): number {
  return 8 + Number(content.readBigUInt64LE());
}

function writtenOf(title: string): Written {
  const found = written.get(title);
  if (found === undefined) throw new Error(title);
  return found;
}

const refusal = ioUringRefusal();
/** Why a driver cannot run here. */
const impossible: Partial<Record<DriverName, string | undefined>> = {
  io_uring: refusal === "" ? undefined : `io_uring is refused here: ${refusal}`,
  nixl: nixlMissing,
};

for (const driver of driverNames) {
  const why = impossible[driver];
  describe.skipIf(why !== undefined)(`the driver ${driver}${why === undefined ? "" : ` (${why})`}`, () => {
    beforeEach(() => {
      vi.stubEnv("MX_NIXL_LIBRARY", nixlLibrary);
    });

    const possible = Object.entries(inputs).filter(([, { options }]) => driver !== "map" || options?.alignmentBytes === undefined);

    describe.each(possible)("%s", (title, { options = {} }) => {
      it.each(["warm", "cold"])("%s", async (state) => {
        const { path, files, expected } = writtenOf(title);
        if (state === "cold") evict(...files);
        else for (const file of files) readFileSync(file);
        await using model = await loadCheckpoint(path, { ...options, driver, threads: 2 });

        expect([...model.tensors.keys()].sort()).toEqual([...expected.keys()].sort());
        for (const [name, tensor] of model.tensors) assertEqualBytes(name, tensor.bytes(), expected.get(name));
        const digests = await model.digest();
        for (const [name, content] of expected) expect(digests.get(name), name).toBe(createHash("sha256").update(content).digest("hex"));
        assertPlaced(model, options);
        assertCounted(model.report, driver, expected, state);
      });
    });

    it("loads one checkpoint twice, side by side", async () => {
      const { path, expected } = writtenOf("large and small tensors by turns");
      await using first = await loadCheckpoint(path, { driver });
      await using second = await loadCheckpoint(path, { driver, threads: 1 });
      for (const [name, content] of expected) {
        assertEqualBytes(name, first.tensors.get(name)?.bytes(), content);
        assertEqualBytes(name, second.tensors.get(name)?.bytes(), content);
      }
    });

    it("never writes a file", async () => {
      const { path, files, expected } = writtenOf("all 22 dtypes");
      const [file = ""] = files;
      const before = readFileSync(file);
      await using model = await loadCheckpoint(path, { driver });
      for (const tensor of model.tensors.values()) tensor.bytes().fill(0xab);
      expect(readFileSync(file).equals(before)).toBe(true);
      expect(model.tensors.get("t.F32")?.bytes()[0]).toBe(0xab);
      expect(expected.get("t.F32")?.[0]).toBe(pattern("t.F32", 1)[0]);
    });

    it("is asked by its flags, and has the name it is asked for by", async () => {
      const { driverOf } = await import("../../src/transfer/drivers.js");
      expect(driverOf(driver)).toMatchObject({
        name: driver,
        capabilities:
          driver === "map"
            ? { memory: ["host"], copies: false, registrable: false }
            : { memory: ["host"], copies: true, registrable: true },
      });
    });

    if (driver !== "map")
      it("streams the same bytes", async () => {
        const { path, files, expected } = writtenOf("several shards");
        evict(...files);
        const names: string[] = [];
        for await (const tensor of streamCheckpoint(path, { driver, maxBytes: 2 * MIB })) {
          assertEqualBytes(tensor.name, tensor.bytes(), expected.get(tensor.name));
          names.push(tensor.name);
        }
        expect(names).toEqual([...(await openCheckpoint(path)).tensors.keys()]);
      });
  });
}

function assertEqualBytes(name: string, found: Uint8Array | undefined, expected: Buffer | undefined): void {
  if (found === undefined || expected === undefined || !expected.equals(found)) throw new Error(`the bytes of ${name} differ`);
}

function assertPlaced(model: Awaited<ReturnType<typeof loadCheckpoint>>, options: LoadOptions): void {
  const aligned = new Set(model.plan.shards.filter((shard) => shard.aligned).map((shard) => shard.index));
  for (const { name, dtype, address, shard } of model.tensors.values()) {
    if (!aligned.has(shard.index)) continue;
    const wanted = options.alignmentBytes ?? dtypes.find((entry) => entry.name === dtype)?.alignBytes ?? 1;
    expect(address % BigInt(wanted), `${name} at ${address}`).toBe(0n);
  }
  if (options.placement === "aligned") expect(aligned.size).toBe(model.plan.shards.length);
}

function assertCounted(
  report: Awaited<ReturnType<typeof loadCheckpoint>>["report"],
  driver: DriverName,
  expected: ReadonlyMap<string, Buffer>,
  state: string,
): void {
  const total = [...expected.values()].reduce((sum, content) => sum + content.length, 0);
  expect(report.bytes).toBe(total);
  expect(report.tensors).toBe(expected.size);
  expect(report.shards.reduce((sum, shard) => sum + shard.bytes, 0)).toBe(total);
  if (driver === "map") return;
  expect(report.reads > 0).toBe(total > 0);
  // In the sum of both ways nothing is read twice and nothing left out.
  const { bytesFromCache, bytesFromDisk } = report;
  if (bytesFromCache !== null && bytesFromDisk !== null) expect(bytesFromCache + bytesFromDisk).toBe(total);
  if (driver === "auto" && state === "warm" && bytesFromCache !== null) expect(bytesFromCache).toBe(total);
}
