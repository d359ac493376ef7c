import { describe, expect, it } from "vitest";
import { VmmArena } from "../../src/arena/arena.js";
import { hostBackend } from "../../src/arena/host-backend.js";
import { ModelExpressError } from "../../src/errors.js";
import { loadCheckpoint } from "../../src/loader/load-checkpoint.js";
import type { LoadedModel } from "../../src/loader/loaded-model.js";
import { streamCheckpoint } from "../../src/loader/stream-checkpoint.js";
import type { Tensor } from "../../src/loader/tensor.js";
import { beginLoad, errorFrom, planFaults, writeCheckpoint } from "../support/loading.js";

const MIB = 2 ** 20;
const tensors = { a: { dtype: "I16", shape: [2], bytes: Buffer.from([1, 0, 2, 0]) }, b: { dtype: "U8", shape: [0] } } as const;

/** What a method does: the value that it gives, or the code that it fails with. */
async function outcome(action: () => unknown): Promise<unknown> {
  try {
    return await action();
  } catch (error) {
    if (error instanceof ModelExpressError) return error.code;
    throw error;
  }
}

/** Method by state; a string in capitals is the code of an error. */
describe("a loaded model", () => {
  const rows: readonly (readonly [method: string, call: (model: LoadedModel) => unknown, open: unknown, closed: unknown])[] = [
    ["closed", (model) => model.closed, false, true],
    ["tensors.size", (model) => model.tensors.size, 2, 2],
    ["tensors.get", (model) => model.tensors.get("a")?.name, "a", "a"],
    ["metadata", (model) => model.metadata.get("format"), "pt", "pt"],
    ["report", (model) => model.report.bytes, 4, 4],
    ["plan", (model) => model.plan.totals.tensors, 2, 2],
    ["checkpoint", (model) => model.checkpoint.tensorCount, 2, 2],
    ["arena", (model) => model.arena.state, "open", "closed"],
    ["digest", async (model) => (await model.digest()).size, 2, "ERR_TENSOR_RELEASED"],
    ["close", (model) => model.close(), undefined, undefined],
    ["asyncDispose", (model) => model[Symbol.asyncDispose](), undefined, undefined],
  ];
  it.each(rows)("%s", async (_, call, open, closed) => {
    const model = await loadCheckpoint(writeCheckpoint(tensors, { metadata: { format: "pt" } }));
    expect(await outcome(() => call(model))).toEqual(open);
    await model.close();
    expect(await outcome(() => call(model))).toEqual(closed);
  });

  it("detaches its views when it is closed, those of parts too, and gives the memory back once", async () => {
    const model = await loadCheckpoint(writeCheckpoint(tensors));
    const tensor = model.tensors.get("a");
    const views = [tensor?.bytes(), tensor?.bytes(1, 2), tensor?.typed()];
    expect(views.map((view) => view?.byteLength)).toEqual([4, 2, 4]);
    await Promise.all([model.close(), model.close()]);
    expect(views.map((view) => view?.byteLength)).toEqual([0, 0, 0]);
    expect(model.arena).toMatchObject({ state: "closed", liveAllocationCount: 0, mappedBytes: 0 });
    await model.close();
  });

  it("closed in the middle of a digest waits for it, and the digest is right", async () => {
    const bytes = Buffer.alloc(20 * MIB);
    const model = await loadCheckpoint(writeCheckpoint({ zeros: { dtype: "U8", shape: [bytes.length], bytes } }));
    const digesting = model.digest();
    await model.close();
    // sha256sum of 20 MiB of zeros.
    expect([...(await digesting)]).toEqual([["zeros", "cd52d81e25f372e6fa4db2c0dfceb59862c1969cab17096da352b34950c973cc"]]);
    expect(model.arena.closed).toBe(true);
  });

  it("that a digest holds longer than closeTimeoutMs is stuck, and can be closed later", async () => {
    const model = await loadCheckpoint(writeCheckpoint({ zeros: { dtype: "U8", shape: [40 * MIB], bytes: Buffer.alloc(40 * MIB) } }), {
      closeTimeoutMs: 0,
    });
    const digesting = model.digest();
    expect(await errorFrom(model.close())).toMatchObject({ code: "ERR_TRANSFER_STUCK" });
    expect(model).toMatchObject({ closed: true, arena: { closed: false } });
    await digesting;
    await model.close();
    expect(model.arena.closed).toBe(true);
  });

  it("ends with its scope", async () => {
    let arena: VmmArena | undefined;
    {
      await using model = await loadCheckpoint(writeCheckpoint(tensors));
      arena = model.arena;
      expect(arena.closed).toBe(false);
    }
    expect(arena.closed).toBe(true);
  });
});

describe("a tensor", () => {
  const rows: readonly (readonly [member: string, call: (tensor: Tensor) => unknown, open: unknown, closed: unknown])[] = [
    ["name", (tensor) => tensor.name, "a", "a"],
    ["dtype", (tensor) => tensor.dtype, "I16", "I16"],
    ["shape", (tensor) => tensor.shape, [2], [2]],
    ["byteLength", (tensor) => tensor.byteLength, 4, 4],
    ["device", (tensor) => tensor.device, "host", "host"],
    ["shard", (tensor) => tensor.shard.name, "model.safetensors", "model.safetensors"],
    ["address", (tensor) => tensor.address > 0n, true, true],
    ["toJSON", (tensor) => tensor.toJSON().name, "a", "a"],
    ["bytes", (tensor) => [...tensor.bytes()], [1, 0, 2, 0], "ERR_TENSOR_RELEASED"],
    ["bytes(0, 0)", (tensor) => tensor.bytes(0, 0).length, 0, "ERR_TENSOR_RELEASED"],
    ["typed", (tensor) => [...tensor.typed()], [1, 2], "ERR_TENSOR_RELEASED"],
  ];
  it.each(rows)("%s", async (_, call, open, closed) => {
    const path = writeCheckpoint(tensors);
    const model = await loadCheckpoint(path);
    const tensor = model.tensors.get("a");
    if (tensor === undefined) throw new Error("no tensor");
    expect(await outcome(() => call(tensor))).toEqual(open);
    await model.close();
    expect(await outcome(() => call(tensor))).toEqual(closed);

    const kept: Tensor[] = [];
    for await (const streamed of streamCheckpoint(path, { maxBytes: 4 })) {
      kept.push(streamed);
      if (streamed.name === "a") expect(await outcome(() => call(streamed))).toEqual(open);
    }
    const [first] = kept;
    if (first === undefined) throw new Error("no tensor");
    expect(await outcome(() => call(first))).toEqual(closed);
  });
});

describe("an arena that is loaded into", () => {
  const rows: readonly (readonly [
    method: string,
    call: (arena: VmmArena, base: bigint) => unknown,
    byState: Record<"loading" | "aborted" | "settled" | "closed", unknown>,
  ])[] = [
    ["state", (arena) => arena.state, { loading: "open", aborted: "open", settled: "open", closed: "closed" }],
    ["closed", (arena) => arena.closed, { loading: false, aborted: false, settled: false, closed: true }],
    ["liveAllocationCount", (arena) => arena.liveAllocationCount, { loading: 1, aborted: 1, settled: 0, closed: 0 }],
    ["usedBytes", (arena) => arena.usedBytes, { loading: 2 * MIB, aborted: 2 * MIB, settled: 2 * MIB, closed: 2 * MIB }],
    ["mappedBytes", (arena) => arena.mappedBytes, { loading: 2 * MIB, aborted: 2 * MIB, settled: 0, closed: 0 }],
    [
      "registeredRange",
      (arena) => arena.registeredRange().usedBytes,
      { loading: 2 * MIB, aborted: 2 * MIB, settled: 2 * MIB, closed: 2 * MIB },
    ],
    [
      "free",
      (arena, base) => arena.free(base),
      { loading: "ERR_ARENA_BUSY", aborted: "ERR_ARENA_BUSY", settled: undefined, closed: undefined },
    ],
    ["malloc", (arena) => typeof arena.malloc(1), { loading: "bigint", aborted: "bigint", settled: "bigint", closed: "ERR_ARENA_CLOSED" }],
    ["close", (arena) => arena.close(), { loading: "ERR_ARENA_BUSY", aborted: "ERR_ARENA_BUSY", settled: undefined, closed: undefined }],
  ];
  it("does by state what the table says", async () => {
    // The second read of each load is stuck for a second.
    planFaults({ nth: 2, stallMs: 1000 });
    const path = writeCheckpoint({ a: { dtype: "U8", shape: [64 * 1024] } });
    const found = await Promise.all(
      rows.map(async ([method, call]) => {
        const arena = new VmmArena({ backend: hostBackend(), totalBytes: 16 * MIB });
        const controller = new AbortController();
        const { load, begun } = beginLoad(path, { driver: "pread", arena, threads: 1, maxChunkBytes: 4096, signal: controller.signal });
        await begun;
        const { base } = arena;
        const loading = await outcome(() => call(arena, base));
        controller.abort();
        const error = await errorFrom(load);
        const aborted = await outcome(() => call(arena, base));
        await error.settled;
        const settled = await outcome(() => call(arena, base));
        arena.close();
        const closed = await outcome(() => call(arena, base));
        return [method, { loading, aborted, settled, closed }];
      }),
    );
    expect(found).toEqual(rows.map(([method, , byState]) => [method, byState]));
  });
});

describe("the map of tensors", () => {
  it("is a ReadonlyMap in the order of shards and offsets, whose values are made once", async () => {
    const path = writeCheckpoint({ z: { dtype: "U8", shape: [1] }, a: { dtype: "U8", shape: [2] }, ü: { dtype: "U8", shape: [3] } });
    await using model = await loadCheckpoint(path);
    const { tensors: map } = model;
    expect([...map.keys()]).toEqual(["z", "a", "ü"]);
    expect([...map.values()].map(({ byteLength }) => byteLength)).toEqual([1, 2, 3]);
    expect([...map].map(([name, tensor]) => [name, tensor.name])).toEqual([["z", "z"], ["a", "a"], ["ü", "ü"]]); // biome-ignore format: one line
    expect([...map.entries()].length).toBe(3);
    const visited: string[] = [];
    map.forEach((tensor, name, whole) => {
      visited.push(`${name}${tensor.byteLength}${whole === map}`);
    });
    expect(visited).toEqual(["z1true", "a2true", "ü3true"]);
    expect([map.size, map.has("ü"), map.has("b"), map.get("b")]).toEqual([3, true, false, undefined]);
    expect(map.get("a")).toBe(map.get("a"));
    expect(new Map(map).size).toBe(3);
    for (const name of ["__proto__", "constructor", "", "__metadata__"]) expect(map.get(name)).toBeUndefined();
  });

  it("holds the selected tensors only", async () => {
    const path = writeCheckpoint({ a: { dtype: "U8", shape: [1] }, b: { dtype: "U8", shape: [1] }, c: { dtype: "U8", shape: [1] } });
    await using model = await loadCheckpoint(path, { exclude: "b" });
    const { tensors: map } = model;
    expect([[...map.keys()], map.size, map.has("b"), map.get("b"), map.get("c")?.name]).toEqual([["a", "c"], 2, false, undefined, "c"]);
    expect([...(await model.digest()).keys()]).toEqual(["a", "c"]);
  });
});
