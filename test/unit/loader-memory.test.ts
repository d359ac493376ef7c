import { beforeEach, describe, expect, it, vi } from "vitest";
import { loadCheckpoint } from "../../src/loader/load-checkpoint.js";
import { streamCheckpoint } from "../../src/loader/stream-checkpoint.js";
import type { AvailableMemory } from "../../src/probe/memory.js";
import { collectEvents } from "../support/events.js";
import { errorFrom, writeCheckpoint } from "../support/loading.js";

const MIB = 2 ** 20;
const tensors = { a: { dtype: "U8", shape: [8 * MIB] }, b: { dtype: "U8", shape: [MIB] } } as const;

const available = vi.hoisted(() => ({ bytes: 0, limitedBy: "/sys/fs/cgroup/small" }));
vi.mock("../../src/probe/memory.js", async (original) => ({
  ...(await original<typeof import("../../src/probe/memory.js")>()),
  readAvailableMemory: (): AvailableMemory => ({ ...available }),
}));

beforeEach(() => {
  available.bytes = 4 * MIB;
});

describe("a load that does not fit into memory", () => {
  it("is refused before anything is allocated, with the figures", async () => {
    const path = writeCheckpoint(tensors);
    const events = collectEvents();
    const error = await errorFrom(loadCheckpoint(path));
    expect(error).toMatchObject({
      code: "ERR_MEMORY_WOULD_NOT_FIT",
      requiredBytes: expect.any(Number),
      availableBytes: 4 * MIB,
      limitedBy: "/sys/fs/cgroup/small",
      checkpoint: path,
      name: "PlanError",
    });
    expect(error.message).toMatch(/4 MiB are available \(\/sys\/fs\/cgroup\/small\)/);
    expect(await errorFrom(streamCheckpoint(path).next())).toMatchObject({ code: "ERR_MEMORY_WOULD_NOT_FIT" });
    expect(events).toEqual([]);
  });

  it("can be had in parts, or mapped", async () => {
    const path = writeCheckpoint(tensors);
    await using part = await loadCheckpoint(path, { include: "b" });
    expect(part.tensors.get("b")?.bytes().length).toBe(MIB);
    await using mapped = await loadCheckpoint(path, { driver: "map" });
    expect(mapped.tensors.get("a")?.bytes().length).toBe(8 * MIB);
  });

  it("can be streamed where a bounded stream fits, and not where that does not either", async () => {
    const path = writeCheckpoint(
      Object.fromEntries(Array.from({ length: 16 }, (_, index) => [`t${index}`, { dtype: "U8", shape: [MIB] }] as const)),
    );
    available.bytes = 9 * MIB;
    expect(await errorFrom(loadCheckpoint(path))).toMatchObject({ code: "ERR_MEMORY_WOULD_NOT_FIT" });
    let count = 0;
    for await (const tensor of streamCheckpoint(path, { maxBytes: 2 * MIB })) count += tensor.bytes().length / MIB;
    expect(count).toBe(16);
    available.bytes = 3 * MIB;
    expect(await errorFrom(streamCheckpoint(path, { maxBytes: 2 * MIB }).next())).toMatchObject({ code: "ERR_MEMORY_WOULD_NOT_FIT" });
  });
});
