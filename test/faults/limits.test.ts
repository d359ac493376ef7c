import { closeSync, ftruncateSync, openSync, rmSync, writeFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { openCheckpoint } from "../../src/checkpoint/open.js";
import { loadCheckpoint } from "../../src/loader/load-checkpoint.js";
import { readAvailableMemory } from "../../src/probe/memory.js";
import { temporaryFolder } from "../support/folders.js";
import { loadInChild } from "../support/load-in-child.js";
import { copyingDrivers, ioUringRefusal, writeShards } from "../support/loading.js";
import { runNode } from "../support/run-node.js";
import { rawHeader } from "../support/safetensors.js";

const GIB = 2 ** 30;
const ioUringWorks = ioUringRefusal() === "";
const { bytes: available } = readAvailableMemory();
const roomFor = (bytes: number) => available === null || available > bytes;

// Node itself has some 25 open: with 70 the loader must do with fewer files at a time than it likes
// to.
describe.each([128, 70])("300 shards with %i descriptors", (descriptors) => {
  const env = { MX_TEST_DESCRIPTORS: String(descriptors) };

  it.each([...copyingDrivers, "map"] as const)("by the driver %s", async (driver) => {
    const folder = writeShards(
      Array.from({ length: 300 }, (_, index) => ({ [`t${index}`]: { dtype: "U8", shape: [1000 + index] } }) as const),
    );
    const { report, digests } = await loadInChild(folder, { driver }, { env });
    expect(report).toMatchObject({ tensors: 300, bytes: 300_000 + (299 * 300) / 2 });
    const checkpoint = await openCheckpoint(folder);
    await using model = await loadCheckpoint(checkpoint);
    expect(digests).toEqual(Object.fromEntries(await model.digest()));
  });
});

describe("address space that is refused", () => {
  it.skipIf(!roomFor(4 * GIB))("is a clear error (needs 4 GiB of memory)", async () => {
    const folder = writeShards([{ t: { dtype: "U8", shape: [100] } }]);
    // Node itself takes 0.7 GiB.
    const under = ["bash", "-c", `ulimit -v ${2.5 * 2 ** 20}; exec "$@"`, "--"];
    const { error } = await loadInChild(sparse([["large", 3 * GIB]]), {}, { under });
    expect(error).toMatchObject({ code: "ERR_ARENA_RESERVE_REFUSED", errno: "ENOMEM" });
    const { report } = await loadInChild(folder, {}, { under });
    expect(report).toMatchObject({ bytes: 100 });
  });
});

/** A file of U8 tensors that are holes, save the marks: bytes at offsets of a tensor. */
function sparse(tensors: readonly (readonly [name: string, length: number, marks?: Readonly<Record<number, number>>])[]): string {
  const file = join(temporaryFolder(), "model.safetensors");
  let begin = 0;
  const header = rawHeader(
    JSON.stringify(
      Object.fromEntries(
        tensors.map(([name, length]) => {
          const entry = { dtype: "U8", shape: [length], data_offsets: [begin, begin + length] };
          begin += length;
          return [name, entry];
        }),
      ),
    ),
  );
  writeFileSync(file, header);
  const descriptor = openSync(file, "r+");
  ftruncateSync(descriptor, header.length + begin);
  let offset = header.length;
  for (const [, length, marks = {}] of tensors) {
    for (const [at, value] of Object.entries(marks)) writeSync(descriptor, Uint8Array.of(value), 0, 1, offset + Number(at));
    offset += length;
  }
  closeSync(descriptor);
  return file;
}

/**
 * Loads in a child, so that the memory goes at once, and tells the bytes at `places` of the tensor
 * `t`, and what a view of the whole gives.
 */
async function readPlaces(file: string, driver: string, places: readonly number[]): Promise<{ bytes: number[]; whole: number | string }> {
  const script = `
    import { loadCheckpoint } from "modelexpress-client";
    const [file, driver, places] = process.argv.slice(2);
    const model = await loadCheckpoint(file, { driver });
    const tensor = model.tensors.get("t");
    const bytes = JSON.parse(places).map((at) => tensor.bytes(at, 1)[0]);
    let whole;
    try { whole = tensor.bytes().length; } catch (error) { whole = error.code; }
    await model.close();
    console.log(JSON.stringify({ bytes, whole }));`;
  const { stdout, stderr } = await runNode(script, { args: [file, driver, JSON.stringify(places)], timeoutMs: 120_000 });
  if (stderr !== "") throw new Error(stderr);
  return JSON.parse(stdout);
}

describe("a tensor beyond 2 GiB", () => {
  const length = 2 * GIB + 8;
  const marks = { 0: 1, [2 * GIB - 1]: 2, [2 * GIB]: 3, [length - 1]: 4 };

  it.skipIf(!roomFor(5 * GIB)).each(["map", ...(ioUringWorks ? ["io_uring"] : ["pread"])])(
    "by the driver %s (needs 5 GiB of memory)",
    async (driver) => {
      const file = sparse([["t", length, marks]]);
      const { bytes, whole } = await readPlaces(file, driver, [0, 1, 2 * GIB - 1, 2 * GIB, length - 1]);
      expect(bytes).toEqual([1, 0, 2, 3, 4]);
      expect(whole).toBe(length);
      rmSync(file);
    },
    150_000,
  );
});

describe("a tensor beyond 4 GiB", () => {
  const length = 4 * GIB + 8;
  const marks = { 0: 1, [4 * GIB - 1]: 2, [4 * GIB]: 3, [length - 1]: 4 };

  it.skipIf(!roomFor(9 * GIB)).each(["map", "auto"])(
    "by the driver %s (needs 9 GiB of memory)",
    async (driver) => {
      const file = sparse([["t", length, marks]]);
      const { bytes, whole } = await readPlaces(file, driver, [0, 1, 4 * GIB - 1, 4 * GIB, length - 1]);
      expect(bytes).toEqual([1, 0, 2, 3, 4]);
      expect(whole).toBe(process.version.startsWith("v20.") ? "ERR_TENSOR_VIEW_TOO_LARGE" : length);
      rmSync(file);
    },
    150_000,
  );
});

describe("a tensor past offset 4 GiB", () => {
  it.each(["map", "pread", "auto", ...(ioUringWorks ? ["io_uring"] : [])])("by the driver %s", async (driver) => {
    const file = sparse([
      ["hole", 5 * GIB],
      ["t", 3 * 2 ** 20 + 11, { 0: 9, [2 ** 20]: 8, [3 * 2 ** 20 + 10]: 7 }],
    ]);
    await using model = await loadCheckpoint(file, { driver: driver as "auto", include: "t" });
    const bytes = model.tensors.get("t")?.bytes();
    expect([0, 1, 2 ** 20, 3 * 2 ** 20 + 10].map((at) => bytes?.[at])).toEqual([9, 0, 8, 7]);
  });
});
