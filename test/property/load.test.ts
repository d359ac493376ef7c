import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, describe, expect, it } from "vitest";
import { dtypes } from "../../src/checkpoint/dtype.js";
import { loadCheckpoint } from "../../src/loader/load-checkpoint.js";
import { streamCheckpoint } from "../../src/loader/stream-checkpoint.js";
import { makeFolder } from "../support/folders.js";
import { copyingDrivers, evict, type Tensors } from "../support/loading.js";
import { buildSafetensors, byteLengthOf, pattern, writeIndex } from "../support/safetensors.js";
import { testSeed } from "../support/seed.js";

const KIB = 1024;

const elements = fc.oneof(
  { weight: 1, arbitrary: fc.constant(0) },
  { weight: 5, arbitrary: fc.integer({ min: 1, max: 300 }) },
  { weight: 3, arbitrary: fc.integer({ min: 1, max: 20 * KIB }) },
  { weight: 1, arbitrary: fc.integer({ min: 100 * KIB, max: 600 * KIB }) },
);
const tensor = fc.record({ dtype: fc.constantFrom(...dtypes.map(({ name }) => name)), elements, selected: fc.boolean() });

const setting = fc.record({
  shards: fc.array(fc.array(tensor, { minLength: 1, maxLength: 8 }), { minLength: 1, maxLength: 3 }),
  pad: fc.constantFrom(1, 8, 512),
  driver: fc.constantFrom(...copyingDrivers),
  placement: fc.constantFrom("auto" as const, "packed" as const, "aligned" as const),
  alignmentBytes: fc.constantFrom(undefined, 1, 64, 256, 4096),
  maxChunkBytes: fc.constantFrom(4096, 5000, 100 * KIB, 8192 * KIB),
  threads: fc.integer({ min: 1, max: 4 }),
  all: fc.boolean(),
  cold: fc.boolean(),
  spareBytes: fc.integer({ min: 0, max: 100 * KIB }),
});

const folder = makeFolder();
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Writes the shards with an index; the path to it, the files, and the names that are selected. */
function write(
  shards: readonly (readonly {
    readonly dtype: (typeof dtypes)[number]["name"];
    readonly elements: number;
    readonly selected: boolean;
  }[])[],
  pad: number,
) {
  const place = mkdtempSync(join(folder, "case-"));
  const selected: string[] = [];
  const weightMap: Record<string, string> = {};
  let largestBytes = 0;
  const files = shards.map((specs, index) => {
    const tensors: Record<string, Tensors[string]> = {};
    for (const [at, spec] of specs.entries()) {
      const name = `${index}.${at}`;
      // A multiple of four elements fills whole bytes whatever the dtype.
      tensors[name] = { dtype: spec.dtype, shape: [spec.elements, 4] };
      weightMap[name] = `${index}.safetensors`;
      if (spec.selected) selected.push(name);
      largestBytes = Math.max(largestBytes, byteLengthOf(spec.dtype, [spec.elements, 4]));
    }
    const file = join(place, `${index}.safetensors`);
    writeFileSync(file, buildSafetensors(tensors, { pad }));
    return file;
  });
  writeIndex(join(place, "model.safetensors.index.json"), weightMap);
  return { place, files, selected, names: Object.keys(weightMap), largestBytes };
}

describe("whatever the checkpoint, the selection and the options", () => {
  it("a load and a stream give exactly the bytes of the files", { timeout: 120_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(setting, async ({ shards, pad, all, cold, spareBytes, ...options }) => {
        const { place, files, selected, names, largestBytes } = write(shards, pad);
        const wanted = all ? names : selected;
        const chosen = all ? options : { ...options, include: (name: string) => selected.includes(name) };
        if (cold) evict(...files);

        await using model = await loadCheckpoint(place, chosen);
        expect([...model.tensors.keys()].sort()).toEqual([...wanted].sort());
        for (const [name, { dtype, shape, bytes }] of [...model.tensors].map(
          ([name, found]) => [name, { ...found.toJSON(), bytes: found.bytes() }] as const,
        )) {
          if (!pattern(name, byteLengthOf(dtype, shape)).equals(bytes)) throw new Error(`the bytes of ${name} differ`);
        }

        const streamed: string[] = [];
        for await (const found of streamCheckpoint(place, { ...chosen, maxBytes: Math.max(1, largestBytes + spareBytes) })) {
          if (!pattern(found.name, found.byteLength).equals(found.bytes())) throw new Error(`the streamed bytes of ${found.name} differ`);
          streamed.push(found.name);
        }
        expect(streamed).toEqual([...model.tensors.keys()]);
        rmSync(place, { recursive: true });
      }),
      { seed: testSeed(), numRuns: 40 },
    );
  });
});
