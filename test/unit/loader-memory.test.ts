import { beforeEach, describe, expect, it, vi } from "vitest";
import { loadCheckpoint } from "../../src/loader/load-checkpoint.js";
import { streamCheckpoint } from "../../src/loader/stream-checkpoint.js";
import { addon } from "../../src/native/load.js";
import type { AvailableMemory } from "../../src/probe/memory.js";
import { collectEvents } from "../support/events.js";
import { beginLoad, errorFrom, planFaults, writeCheckpoint } from "../support/loading.js";

const MIB = 2 ** 20;
const tensors = { a: { dtype: "U8", shape: [32 * MIB] }, b: { dtype: "U8", shape: [MIB] } } as const;

const available = vi.hoisted(() => ({ bytes: 0, limitedBy: "/sys/fs/cgroup/small" }));
vi.mock("../../src/probe/memory.js", async (original) => ({
  ...(await original<typeof import("../../src/probe/memory.js")>()),
  readAvailableMemory: (): AvailableMemory => ({ ...available }),
}));

beforeEach(() => {
  available.bytes = 16 * MIB;
});

describe("a load that does not fit into memory", () => {
  it("is refused before anything is allocated, with the figures", async () => {
    const path = writeCheckpoint(tensors);
    const events = collectEvents();
    const error = await errorFrom(loadCheckpoint(path));
    expect(error).toMatchObject({
      code: "ERR_MEMORY_WOULD_NOT_FIT",
      requiredBytes: expect.any(Number),
      availableBytes: 16 * MIB,
      limitedBy: "/sys/fs/cgroup/small",
      checkpoint: path,
      name: "PlanError",
    });
    expect(error.message).toMatch(/16 MiB are available \(\/sys\/fs\/cgroup\/small\)/);
    expect(await errorFrom(streamCheckpoint(path).next())).toMatchObject({ code: "ERR_MEMORY_WOULD_NOT_FIT" });
    expect(events).toEqual([]);
  });

  it("can be had in parts, or mapped", async () => {
    const path = writeCheckpoint(tensors);
    await using part = await loadCheckpoint(path, { include: "b" });
    expect(part.tensors.get("b")?.bytes().length).toBe(MIB);
    // With room for what is read ahead of it, and still none for a copy.
    available.bytes = 35.5 * MIB;
    expect(await errorFrom(loadCheckpoint(path))).toMatchObject({ code: "ERR_MEMORY_WOULD_NOT_FIT" });
    await using mapped = await loadCheckpoint(path, { driver: "map" });
    expect(mapped.tensors.get("a")?.bytes().length).toBe(32 * MIB);
  });

  it("can be streamed where a bounded stream fits, and not where that does not either", async () => {
    const path = writeCheckpoint(
      Object.fromEntries(Array.from({ length: 16 }, (_, index) => [`t${index}`, { dtype: "U8", shape: [4 * MIB] }] as const)),
    );
    available.bytes = 32 * MIB;
    expect(await errorFrom(loadCheckpoint(path))).toMatchObject({ code: "ERR_MEMORY_WOULD_NOT_FIT" });
    let count = 0;
    for await (const tensor of streamCheckpoint(path, { maxBytes: 8 * MIB })) count += tensor.bytes().length / MIB;
    expect(count).toBe(64);
    available.bytes = 12 * MIB;
    expect(await errorFrom(streamCheckpoint(path, { maxBytes: 8 * MIB }).next())).toMatchObject({ code: "ERR_MEMORY_WOULD_NOT_FIT" });
  });

  it("is let pass where the check is to be ignored, and the report and an event say what it found", async () => {
    const path = writeCheckpoint(tensors);
    const events = collectEvents();
    await using model = await loadCheckpoint(path, { memoryCheck: "ignore" });
    expect(model.tensors.get("a")?.bytes().length).toBe(32 * MIB);
    expect(model.report.memory).toMatchObject({ check: "ignore", fits: false, availableBytes: 16 * MIB });
    const ignored = events.filter(({ event }) => event === "load.memory-check-ignored");
    expect(ignored).toEqual([{ event: "load.memory-check-ignored", path, reason: expect.stringMatching(/16 MiB are available/) }]);
    let count = 0;
    for await (const tensor of streamCheckpoint(path, { memoryCheck: "ignore" })) count += tensor.byteLength / MIB;
    expect(count).toBe(33);
    expect(await errorFrom(loadCheckpoint(path, { memoryCheck: "off" as never }))).toMatchObject({ option: "memoryCheck" });
  });
});

describe("loads at one time", () => {
  const path = () => writeCheckpoint(tensors);

  it("each count what the others have yet to take", async () => {
    available.bytes = 56 * MIB;
    const outcomes = await Promise.allSettled([loadCheckpoint(path()), loadCheckpoint(path())]);
    const [loaded, refused] = [
      outcomes.filter(({ status }) => status === "fulfilled"),
      outcomes.filter(({ status }) => status === "rejected"),
    ];
    expect([loaded.length, refused.length]).toEqual([1, 1]);
    expect((refused[0] as PromiseRejectedResult).reason).toMatchObject({
      code: "ERR_MEMORY_WOULD_NOT_FIT",
      limitedBy: expect.stringMatching(/^\/sys\/fs\/cgroup\/small, less 3\d(\.\d+)? MiB that other loads have yet to take$/),
    });
    for (const outcome of outcomes) if (outcome.status === "fulfilled") await outcome.value.close();
    expect(addon().claimedBytes()).toBe(0);
  });

  it("take no part in it once they are over, however they end", async () => {
    available.bytes = 96 * MIB;
    const controller = new AbortController();
    planFaults({ nth: 2, stallMs: 200 });
    const { load, begun } = beginLoad(path(), { driver: "pread", signal: controller.signal });
    await begun;
    expect(addon().claimedBytes()).toBeGreaterThan(0);
    controller.abort();
    expect(await errorFrom(load)).toMatchObject({ code: "ERR_ABORTED" });
    expect(addon().claimedBytes()).toBe(0);
    await using model = await loadCheckpoint(path());
    expect(model.report.memory).toMatchObject({ check: "enforce", fits: true });
  });
});
