import { inspect } from "node:util";
import { expect, it } from "vitest";
import { openCheckpoint } from "../../src/checkpoint/open.js";
import { loadCheckpoint } from "../../src/loader/load-checkpoint.js";
import { planLoad } from "../../src/plan/plan-load.js";
import { writeCheckpoint, writeShards } from "../support/loading.js";

const tensors = { "model.embed": { dtype: "BF16", shape: [3, 4] }, empty: { dtype: "F32", shape: [0] } } as const;

/** What `console.log` shows, with what differs from run to run taken out. */
function shown(value: unknown, path: string): string {
  return inspect(value, { breakLength: 1000 })
    .replaceAll(path, "PATH")
    .replaceAll(/0x[0-9a-f]+/g, "0xADDRESS");
}

const json = (value: unknown) => JSON.parse(JSON.stringify(value));

it("a checkpoint shows and tells what it holds, not every tensor", async () => {
  const path = writeCheckpoint(tensors, { metadata: { format: "pt" } });
  const checkpoint = await openCheckpoint(path);
  expect(shown(checkpoint, path)).toBe("Checkpoint { path: 'PATH', kind: 'file', shards: 1, tensors: 2, parameters: 12, bytes: '24 B' }");
  expect(json(checkpoint)).toEqual({
    path,
    kind: "file",
    tensorCount: 2,
    parameterCount: 12,
    byteLength: 24,
    metadata: { format: "pt" },
    shards: [{ name: "model.safetensors", byteLength: checkpoint.shards[0]?.byteLength, tensorCount: 2 }],
  });
});

it("a plan shows its sums, and tells everything", async () => {
  const path = writeCheckpoint(tensors);
  const plan = planLoad(await openCheckpoint(path), { placement: "packed" });
  expect(shown(plan, path)).toMatch(
    /^LoadPlan \{ path: 'PATH', device: 'host', placement: 'packed', shards: 1, tensors: 2, bytes: '24 B', ranges: 1, /,
  );
  expect(json(plan)).toMatchObject({
    totals: { tensors: 2, bytes: 24 },
    shards: [{ placements: [{ name: "model.embed" }, { name: "empty" }] }],
  });
});

it("a model, its tensors, report and arena show what they are in short, and tell it as JSON", async () => {
  const path = writeCheckpoint(tensors, { metadata: { format: "pt" } });
  await using model = await loadCheckpoint(path, { driver: "pread", threads: 1 });
  expect(shown(model, path)).toBe(
    "LoadedModel { path: 'PATH', device: 'host', tensors: 2, bytes: '24 B', address: '0xADDRESS', closed: false }",
  );
  expect(inspect({ list: [[model]] }, { depth: 1 })).toContain("[Array]");
  expect(inspect([[[model]]], { depth: 2 })).toBe("[ [ [ [LoadedModel] ] ] ]");
  const address = model.requireTensor("model.embed").address;
  expect(json(model)).toMatchObject({
    path,
    device: "host",
    closed: false,
    tensorCount: 2,
    byteLength: 24,
    address: `0x${address.toString(16)}`,
    metadata: { format: "pt" },
    report: { bytes: 24, driver: { asked: "pread", used: ["buffered"] } },
  });
  expect(shown(model.requireTensor("model.embed"), path)).toBe(
    'Tensor "model.embed" BF16 [3, 4], 24 B at 0xADDRESS, from "model.safetensors"',
  );
  expect(shown(model.requireTensor("empty"), path)).toContain('Tensor "empty" F32 [0], 0 B at 0xADDRESS');
  expect(shown(model.report, path)).toMatch(
    /^LoadReport \{ path: 'PATH', device: 'host', driver: 'pread: buffered', tensors: 2, bytes: '24 B', fromCache: /,
  );
  expect({ ...model.report }).toEqual(json(model.report));
  expect(shown(model.arena, path)).toMatch(/^VmmArena \{ base: '0xADDRESS', totalBytes: \d+, .*liveAllocationCount: 1, closed: false \}$/);
  expect(json(model.arena)).toMatchObject({ base: `0x${model.arena.base.toString(16)}`, device: "host", memory: "host", closed: false });
});

it("a report of many shards shows the first few", async () => {
  const folder = writeShards(Array.from({ length: 5 }, (_, at) => ({ [`t${at}`]: { dtype: "U8", shape: [1] } as const })));
  await using model = await loadCheckpoint(folder, { driver: "pread" });
  expect(shown(model.report, folder)).toContain(
    "shards: [ 'model-1.safetensors: asked for by name', 'model-2.safetensors: asked for by name', 'model-3.safetensors: asked for by name', '... and 2 more' ]",
  );
});

it("a borrow shows what is borrowed, and whether it still is", async () => {
  const path = writeCheckpoint(tensors);
  await using model = await loadCheckpoint(path, { driver: "pread" });
  const borrow = model.borrow();
  expect(shown(borrow, path)).toBe("Borrow { path: 'PATH', bytes: '24 B', released: false }");
  borrow.release();
  expect(json(borrow)).toEqual({ path, byteLength: 24, released: true });
});

it("what belongs to its thread refuses to be cloned or posted, and says what to do", async () => {
  await using model = await loadCheckpoint(writeCheckpoint(tensors), { driver: "pread" });
  using borrow = model.borrow();
  const { arena, checkpoint } = model;
  const refusals: [object, RegExp][] = [
    [model, /A LoadedModel stays in its thread: send model\.toJSON\(\), or copies of its bytes/],
    [model.requireTensor("model.embed"), /A Tensor stays in its thread: send tensor\.toJSON\(\), or a copy of its bytes/],
    [borrow, /A Borrow stays in its thread/],
    [model.tensors, /This map stays in its thread/],
    [arena, /A VmmArena stays in its thread/],
    [checkpoint, /A Checkpoint stays in its thread/],
  ];
  const { port1, port2 } = new MessageChannel();
  for (const [value, message] of refusals) {
    const refusal = expect.objectContaining({ name: "DataCloneError", message: expect.stringMatching(message) });
    expect(() => structuredClone({ value })).toThrow(refusal);
    expect(() => port1.postMessage(value)).toThrow(refusal);
  }
  port1.close();
  port2.close();
});
