import { closeSync, openSync, readdirSync, truncateSync, writeFileSync } from "node:fs";
import { open as openHandle } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { VmmArena } from "../../src/arena/arena.js";
import { hostBackend } from "../../src/arena/host-backend.js";
import { StubBackend } from "../../src/arena/stub-backend.js";
import type { ModelExpressError } from "../../src/errors.js";
import { cufileConfiguration } from "../../src/transfer/gds/cufile-configuration.js";
import { GdsTransferManager } from "../../src/transfer/gds/manager.js";
import type { GdsOptions } from "../../src/transfer/gds/options.js";
import { type GdsRange, placeRanges } from "../../src/transfer/gds/ranges.js";
import { NixlAgent } from "../../src/transfer/nixl/agent.js";
import { collectEvents } from "../support/events.js";
import { temporaryFolder } from "../support/folders.js";
import { describeNixl } from "../support/nixl.js";

const kib = 1024;
const mib = 2 ** 20;

function pattern(length: number): Buffer {
  const words = new Uint32Array(Math.ceil(length / 4));
  for (let at = 0; at < words.length; at++) words[at] = Math.imul(at + 1, 2_654_435_761);
  return Buffer.from(words.buffer, 0, length);
}

const content = pattern(5 * mib + 123);

function fileOf(bytes: Uint8Array): string {
  const file = join(temporaryFolder(), "weights.bin");
  writeFileSync(file, bytes);
  return file;
}

function descriptorCount(): number {
  return readdirSync("/proc/self/fd").length;
}

describe("GdsTransferManager before anything is touched", () => {
  it("takes defaults from the environment when it is made, and options over them", () => {
    const plain = new GdsTransferManager({ agentName: "a" });
    expect([plain.agentName, plain.device, plain.plugin, plain.threads, plain.maxChunkBytes, plain.timeoutMs]).toEqual([
      "a",
      "cuda:0",
      "GDS_MT",
      8,
      128 * mib,
      120_000,
    ]);
    vi.stubEnv("MX_GDS_THREADS", "3");
    vi.stubEnv("MX_GDS_MAX_CHUNK_KB", "64");
    vi.stubEnv("MX_GDS_TIMEOUT", "0.5");
    const stubbed = new GdsTransferManager({ agentName: "a" });
    expect([stubbed.threads, stubbed.maxChunkBytes, stubbed.timeoutMs]).toEqual([3, 64 * kib, 500]);
    const given = new GdsTransferManager({ agentName: "a", device: "host", threads: 5, maxChunkBytes: 4097, timeoutMs: 7 });
    expect([given.device, given.plugin, given.threads, given.maxChunkBytes, given.timeoutMs]).toEqual(["host", "POSIX", 5, 4097, 7]);
    vi.stubEnv("MX_GDS_THREADS", "");
    expect(new GdsTransferManager({ agentName: "a" }).threads).toBe(8);
  });

  it.each([
    ["MX_GDS_THREADS", "0"],
    ["MX_GDS_THREADS", "-1"],
    ["MX_GDS_THREADS", "many"],
    ["MX_GDS_MAX_CHUNK_KB", "-1"],
    ["MX_GDS_MAX_CHUNK_KB", "1.5"],
    ["MX_GDS_TIMEOUT", "0"],
    ["MX_GDS_TIMEOUT", "-3"],
    ["MX_GDS_TIMEOUT", "soon"],
  ])("refuses %s=%s by name", (name, value) => {
    vi.stubEnv(name, value);
    expect(() => new GdsTransferManager({ agentName: "a" })).toThrow(expect.objectContaining({ code: "ERR_ENV_INVALID", option: name }));
  });

  it.each([
    [{ agentName: "" }, "agentName"],
    [{ device: "cuda" }, "device"],
    [{ threads: 0 }, "threads"],
    [{ threads: 1.5 }, "threads"],
    [{ maxChunkBytes: 0 }, "maxChunkBytes"],
    [{ maxChunkBytes: Number.POSITIVE_INFINITY }, "maxChunkBytes"],
    [{ timeoutMs: 0 }, "timeoutMs"],
    [{ registration: "none" }, "registration"],
    [{ plugin: "" }, "plugin"],
  ])("refuses %o", (options, option) => {
    expect(() => new GdsTransferManager({ agentName: "a", ...options } as GdsOptions)).toThrow(expect.objectContaining({ option }));
  });

  it.each([
    ["MX_GDS_THREADS", "1025", "threads", 1025, 1024, 1024],
    ["MX_GDS_MAX_CHUNK_KB", "1048577", "maxChunkBytes", 1_048_577, 1_048_576, 2 ** 30],
    ["MX_GDS_TIMEOUT", "2147484", "timeoutMs", 2_147_484_000, 2 ** 31 - 1, 2 ** 31 - 1],
  ] as const)("takes the largest supported for %s=%s, and tells so", (option, text, property, given, used, value) => {
    vi.stubEnv(option, text);
    const events = collectEvents();
    expect(new GdsTransferManager({ agentName: "a" })[property]).toBe(value);
    expect(events).toEqual([{ event: "option.clamped", option, given, used }]);
  });

  it("takes the longest read there is for a longer maxChunkBytes, and the default for MX_GDS_MAX_CHUNK_KB=0", () => {
    const events = collectEvents();
    expect(new GdsTransferManager({ agentName: "a", maxChunkBytes: 2 ** 30 + 1 }).maxChunkBytes).toBe(2 ** 30);
    expect(events).toEqual([{ event: "option.clamped", option: "maxChunkBytes", given: 2 ** 30 + 1, used: 2 ** 30 }]);
    vi.stubEnv("MX_GDS_MAX_CHUNK_KB", "0");
    expect(new GdsTransferManager({ agentName: "a" }).maxChunkBytes).toBe(128 * mib);
  });

  it("is an error to use before initialize", async () => {
    const manager = new GdsTransferManager({ agentName: "a", device: "host" });
    await expect(manager.batchLoadFile(0, 0, [])).rejects.toMatchObject({ code: "ERR_GDS_NOT_INITIALIZED", agent: "a" });
    await manager.shutdown();
    await manager.shutdown();
  });

  it("places buffers at pages, empty ones nowhere", () => {
    const { at, totalBytes } = placeRanges(
      [
        [0, 1],
        [5, 0],
        [10, 4096],
        [0, 10],
      ],
      5000,
      "f",
    );
    expect([[...at], totalBytes]).toEqual([[0, 1, 4096, 8192], 8202]);
    expect(placeRanges([], 0, "f").totalBytes).toBe(0);
  });

  it.each<[unknown, string]>([
    [[[0, 11]], "ERR_GDS_PAST_END"],
    [[[11, 0]], "ERR_GDS_PAST_END"],
    [[[10, 1]], "ERR_GDS_PAST_END"],
    [[[Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER]], "ERR_GDS_PAST_END"],
    [[[-1, 1]], "ERR_OPTION_INVALID"],
    [[[0, -1]], "ERR_OPTION_INVALID"],
    [[[0.5, 1]], "ERR_OPTION_INVALID"],
    [[[2 ** 53, 1]], "ERR_OPTION_INVALID"],
    [[[0, Number.NaN]], "ERR_OPTION_INVALID"],
    [[[0]], "ERR_OPTION_INVALID"],
    [[7], "ERR_OPTION_INVALID"],
    ["all", "ERR_OPTION_INVALID"],
  ])("refuses the ranges %j of a file of ten bytes", (ranges, code) => {
    expect(() => placeRanges(ranges as GdsRange[], 10, "f")).toThrow(expect.objectContaining({ code }));
  });

  it("knows cuFile's limit on registered bytes from its configuration", () => {
    const config =
      '{\n  // "max_device_pinned_mem_size_kb": 7,\n  "properties": { "max_device_pinned_mem_size_kb" : 33554432, "allow_compat_mode": false } }';
    const read = (path: string) => (path === "/c.json" ? config : undefined);
    expect(cufileConfiguration({ CUFILE_ENV_PATH_JSON: "/c.json" }, read)).toEqual({
      path: "/c.json",
      found: true,
      limitBytes: 32 * 2 ** 30,
      compatibilityMode: false,
    });
    expect(cufileConfiguration({}, read)).toEqual({
      path: "/etc/cufile.json",
      found: false,
      limitBytes: undefined,
      compatibilityMode: undefined,
    });
  });
});

describeNixl("GdsTransferManager on host memory, NIXL's POSIX plugin", (library) => {
  const open: { close?(): unknown; shutdown?(): Promise<void> }[] = [];
  afterEach(async () => {
    for (const one of open.splice(0).reverse()) await (one.shutdown?.() ?? one.close?.());
  });
  // NIXL keeps what it opens when it is loaded.
  beforeAll(async () => {
    const agent = await NixlAgent.create({ name: "first", plugins: { POSIX: {} }, library });
    await agent.close();
  });

  async function makeManager(options: Partial<GdsOptions> = {}): Promise<GdsTransferManager> {
    const manager = await GdsTransferManager.create({ agentName: "mx-gds-test", device: "host", library, ...options });
    open.push(manager);
    return manager;
  }

  const ranges: GdsRange[] = [
    [3 * mib, mib],
    [0, 1],
    [17, 100_000],
    [5, 0],
    [mib - 1, 2 * mib + 2],
    [content.length - 1, 1],
    [17, 5],
  ];

  function expectRight(buffers: readonly { bytes(): Uint8Array }[]): void {
    expect(buffers.length).toBe(ranges.length);
    for (const [row, [offset, bytes]] of ranges.entries()) {
      const found = buffers[row]?.bytes() ?? new Uint8Array(1);
      expect(Buffer.compare(found, content.subarray(offset, offset + bytes))).toBe(0);
    }
  }

  it.each<Partial<GdsOptions>>([
    {},
    { registration: "whole" },
    { maxChunkBytes: 4096, threads: 2 },
    { maxChunkBytes: 65_537, threads: 1, registration: "whole" },
  ])("loads every range, with %o", async (options) => {
    const file = fileOf(content);
    const before = descriptorCount();
    const manager = await makeManager(options);
    const batch = await manager.batchLoadFile(file, content.length, ranges);
    open.push(batch);
    expectRight(batch.buffers);
    const { report } = batch;
    const bytes = ranges.reduce((sum, [, length]) => sum + length, 0);
    expect(report).toMatchObject({
      file,
      device: "host",
      plugin: "POSIX",
      bytes,
      path: "host",
      registration: options.registration ?? "chunks",
    });
    const maxChunkBytes = options.maxChunkBytes ?? 128 * mib;
    expect(report.chunks).toBe(ranges.reduce((sum, [, length]) => sum + Math.ceil(length / maxChunkBytes), 0));
    expect(report.registrations).toBe(options.registration === "whole" ? 2 : report.windows + 1);
    expect(report.registeredBytes).toBe(options.registration === "whole" ? report.allocationBytes : bytes);
    await manager.shutdown();
    // Outlives the manager.
    expectRight(batch.buffers);
    expect(await batch.buffers[1]?.copyToHost()).toEqual(new Uint8Array(content.subarray(0, 1)));
    const view = batch.buffers[0]?.bytes();
    await batch.close();
    await batch.close();
    expect(view?.byteLength).toBe(0);
    expect(() => batch.buffers[0]?.bytes()).toThrow(expect.objectContaining({ code: "ERR_TENSOR_RELEASED" }));
    expect(descriptorCount()).toBe(before);
  });

  it("takes a descriptor that is closed at once, a FileHandle, and several batches side by side", async () => {
    const path = fileOf(content);
    const manager = await makeManager({ maxChunkBytes: 100_000 });
    const fd = openSync(path, "r");
    const first = manager.batchLoadFile(fd, content.length, ranges);
    closeSync(fd);
    const handle = await openHandle(path);
    const second = manager.batchLoadFile(handle, content.length, ranges);
    await handle.close();
    const third = manager.batchLoadFile(path, content.length, ranges);
    for (const batch of await Promise.all([first, second, third])) {
      open.push(batch);
      expectRight(batch.buffers);
    }
  });

  it("loads into an arena, and frees there", async () => {
    const arena = new VmmArena({ backend: hostBackend(), totalBytes: 64 * mib });
    open.push(arena);
    const manager = await makeManager();
    const batch = await manager.batchLoadFile(fileOf(content), content.length, ranges, { into: arena });
    expectRight(batch.buffers);
    expect(batch.buffers[0]?.address).toBe(arena.base);
    expect(arena.liveAllocationCount).toBe(1);
    await batch.close();
    expect(arena.liveAllocationCount).toBe(0);
    const stub = new VmmArena({ backend: new StubBackend(), totalBytes: 64 * mib });
    open.push(stub);
    await expect(manager.batchLoadFile(fileOf(content), 10, [[0, 1]], { into: stub })).rejects.toMatchObject({
      code: "ERR_ARENA_NOT_LOADABLE",
    });
  });

  it("gives an empty batch for an empty list, and empty buffers without a request", async () => {
    const file = fileOf(content);
    const manager = await makeManager();
    const none = await manager.batchLoadFile(file, content.length, []);
    expect([none.buffers.length, none.report.windows]).toEqual([0, 0]);
    const empty = await manager.batchLoadFile(file, content.length, [[7, 0]]);
    expect([empty.buffers[0]?.byteLength, empty.buffers[0]?.bytes().length, empty.report.registrations]).toEqual([0, 0, 0]);
    await none.close();
    await empty.close();
  });

  it("refuses what lies past the end before anything is allocated", async () => {
    const file = fileOf(content);
    const arena = new VmmArena({ backend: hostBackend(), totalBytes: 64 * mib });
    open.push(arena);
    const manager = await makeManager();
    const past = manager.batchLoadFile(file, content.length, [[content.length - 1, 2]], { into: arena });
    await expect(past).rejects.toMatchObject({ code: "ERR_GDS_PAST_END", file, offset: content.length - 1, length: 2 });
    const grown = manager.batchLoadFile(file, content.length + 1, [], { into: arena });
    await expect(grown).rejects.toMatchObject({ code: "ERR_GDS_PAST_END" });
    await expect(manager.batchLoadFile(file, -1, [])).rejects.toMatchObject({ code: "ERR_OPTION_INVALID" });
    await expect(manager.batchLoadFile(-1, 0, [])).rejects.toMatchObject({ code: "ERR_OPTION_INVALID" });
    await expect(manager.batchLoadFile(99_999, 0, [])).rejects.toMatchObject({ code: "ERR_TRANSFER_OPEN", errno: "EBADF" });
    await expect(manager.batchLoadFile("/nowhere", 0, [])).rejects.toMatchObject({ code: "ERR_TRANSFER_OPEN", errno: "ENOENT" });
    expect(arena.usedBytes).toBe(0);
  });

  it("shares one initialization, shuts down twice, and works again afterwards", async () => {
    const manager = new GdsTransferManager({ agentName: "again", device: "host", library });
    open.push(manager);
    await Promise.all([manager.initialize(), manager.initialize(), manager.initialize()]);
    await manager.initialize();
    await Promise.all([manager.shutdown(), manager.shutdown()]);
    expect(manager.initialized).toBe(false);
    await expect(manager.batchLoadFile(0, 0, [])).rejects.toMatchObject({ code: "ERR_GDS_NOT_INITIALIZED" });
    await manager.initialize();
    const batch = await manager.batchLoadFile(fileOf(content), content.length, ranges);
    expectRight(batch.buffers);
    await batch.close();
  });

  it("stops at an abort, gives the memory back once nothing is in flight, and goes on with the next batch", async () => {
    const file = fileOf(content);
    const arena = new VmmArena({ backend: hostBackend(), totalBytes: 512 * mib });
    open.push(arena);
    const manager = await makeManager({ maxChunkBytes: 4096, threads: 1 });
    // Tens of thousands of reads, which are under way long after the abort.
    const many = Array.from({ length: 60 }, () => [0, content.length] as const);
    const abort = new AbortController();
    const reason = new Error("no longer wanted");
    const loading = manager.batchLoadFile(file, content.length, many, { signal: abort.signal, into: arena });
    setTimeout(() => abort.abort(reason), 5);
    const error = await loading.catch((thrown) => thrown);
    expect(error).toMatchObject({ code: "ERR_ABORTED", cause: reason });
    await error.settled;
    expect(arena.liveAllocationCount).toBe(0);
    await expect(manager.batchLoadFile(file, content.length, ranges, { signal: abort.signal })).rejects.toMatchObject({
      code: "ERR_ABORTED",
      cause: reason,
    });
    const batch = await manager.batchLoadFile(file, content.length, ranges);
    expectRight(batch.buffers);
    await batch.close();
  });

  it("ends a batch that is late with its deadline", async () => {
    const arena = new VmmArena({ backend: hostBackend(), totalBytes: 64 * mib });
    open.push(arena);
    const manager = await makeManager({ maxChunkBytes: 512, threads: 1, timeoutMs: 1 });
    const error = await manager.batchLoadFile(fileOf(content), content.length, ranges, { into: arena }).catch((thrown) => thrown);
    expect(error).toMatchObject({ code: "ERR_TRANSFER_TIMEOUT", timeoutMs: 1 });
    await error.settled;
    expect(arena.liveAllocationCount).toBe(0);
  });

  it("undoes everything when a read fails, and makes a new agent for the next batch", async () => {
    const arena = new VmmArena({ backend: hostBackend(), totalBytes: 64 * mib });
    open.push(arena);
    const manager = await makeManager({ maxChunkBytes: 1024 });
    const folder = temporaryFolder();
    const error = await manager.batchLoadFile(folder, 100, [[0, 100]], { into: arena }).catch((thrown) => thrown);
    expect(error).toMatchObject({ code: "ERR_NIXL_TRANSFER", plugin: "POSIX", file: folder, offset: 0, length: 100 });
    await error.settled;
    expect(arena.liveAllocationCount).toBe(0);
    const batch = await manager.batchLoadFile(fileOf(content), content.length, ranges, { into: arena });
    expectRight(batch.buffers);
    await batch.close();
  });

  it("notices a file that is cut while it is read", async () => {
    const manager = await makeManager({ maxChunkBytes: 4096, threads: 1 });
    const cut = async (): Promise<{ file: string; error: ModelExpressError }> => {
      const file = fileOf(content);
      const loading = manager.batchLoadFile(file, content.length, ranges).catch((thrown: ModelExpressError) => thrown);
      await new Promise((resolve) => setTimeout(resolve, 5));
      truncateSync(file, 10);
      const outcome = await loading;
      if (outcome instanceof Error) return { file, error: outcome };
      // On a busy machine all of it may have been read before: then once more.
      await outcome.close();
      return await cut();
    };
    const { file, error } = await cut();
    // It may as well be cut before it is even looked at.
    expect(["ERR_TRANSFER_FILE_CHANGED", "ERR_NIXL_TRANSFER", "ERR_GDS_PAST_END"]).toContain(error.code);
    expect(error.file).toBe(file);
    await error.settled;
  });

  it("uses an agent of the caller's, and leaves it open", async () => {
    const agent = await NixlAgent.create({ name: "mine", plugins: { POSIX: {} }, library });
    open.push(agent);
    const manager = await makeManager({ agent });
    const batch = await manager.batchLoadFile(fileOf(content), content.length, ranges);
    expectRight(batch.buffers);
    await batch.close();
    await manager.shutdown();
    expect(agent.closed).toBe(false);
    await expect(makeManager({ agent, plugin: "UCX" })).rejects.toMatchObject({ code: "ERR_OPTION_CONFLICT" });
  });

  it("stops batches in flight at shutdown", async () => {
    const manager = await makeManager({ maxChunkBytes: 512, threads: 1 });
    const loading = manager.batchLoadFile(fileOf(content), content.length, ranges).catch((thrown) => thrown);
    await new Promise((resolve) => setTimeout(resolve, 3));
    await manager.shutdown();
    // The second where the machine is so slow that shutdown() overtakes the allocation.
    expect(["ERR_TRANSFER_ABORTED", "ERR_GDS_NOT_INITIALIZED"]).toContain((await loading).code);
  });

  it("says what is missing for a plugin that cannot be loaded here", async () => {
    const made = makeManager({ device: "cuda:0" });
    await expect(made).rejects.toMatchObject({ code: "ERR_NIXL_PLUGIN", plugin: "GDS_MT", available: expect.stringContaining("POSIX") });
  });
});
