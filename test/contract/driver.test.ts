import { createHash } from "node:crypto";
import { readFileSync, rmSync } from "node:fs";
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from "vitest";
import { dtypes } from "../../src/checkpoint/dtype.js";
import { openCheckpoint } from "../../src/checkpoint/open.js";
import type { DriverName } from "../../src/envs.js";
import { loadCheckpoint } from "../../src/loader/load-checkpoint.js";
import type { LoadOptions } from "../../src/loader/options.js";
import { streamCheckpoint } from "../../src/loader/stream-checkpoint.js";
import { driverOf, driversFilling } from "../../src/transfer/drivers.js";
import { makeFolder } from "../support/folders.js";
import { inputs, MIB, type Written, writeInput } from "../support/inputs.js";
import { evict, ioUringRefusal } from "../support/loading.js";
import { nixlLibrary, nixlMissing } from "../support/nixl.js";
import { pattern } from "../support/safetensors.js";

const folder = makeFolder();
const written = new Map<string, Written>();

beforeAll(() => {
  for (const title of Object.keys(inputs)) written.set(title, writeInput(folder, title));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

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

for (const driver of driversFilling("host")) {
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

    it("is asked by its flags, and has the name it is asked for by", () => {
      expect(driverOf(driver)).toMatchObject({
        name: driver,
        capabilities: {
          memory: driver === "nixl" ? ["host", "device"] : ["host"],
          copies: driver !== "map",
          registrable: driver !== "map",
        },
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
