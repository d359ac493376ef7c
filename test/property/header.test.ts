import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, expect, it } from "vitest";
import { type Dtype, dtypes } from "../../src/checkpoint/dtype.js";
import { openCheckpoint } from "../../src/checkpoint/open.js";
import { CheckpointError } from "../../src/errors.js";
import { makeFolder } from "../support/folders.js";
import { buildSafetensors } from "../support/safetensors.js";
import { testSeed } from "../support/seed.js";

const folder = makeFolder();
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const file = join(folder, "sample");

const dtype = fc.constantFrom<Dtype>(...dtypes.map(({ name }) => name));
// A last dimension of 8 lets every dtype end at a byte; 0 makes an empty tensor.
const shape = fc.tuple(fc.array(fc.nat(4), { maxLength: 3 }), fc.constantFrom(8, 0)).map(([dims, last]) => [...dims, last]);
const name = fc
  .string({ unit: "grapheme", maxLength: 12 })
  .filter((text) => Buffer.from(text).toString() === text && text !== "__metadata__" && text !== "__proto__");
const tensors = fc.uniqueArray(fc.record({ name, dtype, shape }), { selector: (tensor) => tensor.name, maxLength: 20 });
const build = (list: readonly { name: string; dtype: Dtype; shape: number[] }[], metadata: Record<string, string>) =>
  buildSafetensors(Object.fromEntries(list.map((tensor) => [tensor.name, tensor])), { metadata });

it("what is written comes back", async () => {
  await fc.assert(
    fc.asyncProperty(tensors, fc.dictionary(name, name), async (list, metadata) => {
      writeFileSync(file, build(list, metadata));
      const checkpoint = await openCheckpoint(file);
      const found = [...checkpoint.tensors.values()].map(({ name, dtype, shape }) => ({ name, dtype, shape: [...shape] }));
      expect(new Set(found.map((tensor) => JSON.stringify(tensor)))).toEqual(new Set(list.map((tensor) => JSON.stringify(tensor))));
      expect(list.every((tensor) => checkpoint.tensors.get(tensor.name)?.name === tensor.name)).toBe(true);
      expect(Object.fromEntries(checkpoint.metadata)).toEqual({ ...metadata });
      const end = found.reduce((offset, { name }) => offset + (checkpoint.tensors.get(name)?.byteLength ?? Number.NaN), 0);
      expect(end).toBe(checkpoint.byteLength);
    }),
    { seed: testSeed(), numRuns: 100 },
  );
});

it("damaged files are refused with a code, or are whole", async () => {
  const damage = fc.array(fc.tuple(fc.nat(), fc.nat(255)), { minLength: 1, maxLength: 4 });
  await fc.assert(
    fc.asyncProperty(tensors, damage, fc.boolean(), async (list, changes, cut) => {
      const bytes = build(list, {});
      for (const [at, value] of changes) bytes[at % bytes.length] = value;
      writeFileSync(file, cut ? bytes.subarray(0, (changes[0]?.[0] ?? 0) % bytes.length) : bytes);
      try {
        const { tensors, shards } = await openCheckpoint(file);
        const [shard] = shards;
        let end = shard?.dataOffset;
        for (const { offset, byteLength } of tensors.values()) {
          expect(offset).toBe(end);
          end = offset + byteLength;
        }
        expect(end).toBe(shard?.byteLength);
      } catch (error) {
        if (!(error instanceof CheckpointError)) throw error;
      }
    }),
    { seed: testSeed(), numRuns: 200 },
  );
});
