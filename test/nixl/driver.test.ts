import { appendFileSync, readdirSync } from "node:fs";
import { beforeEach, expect, it, vi } from "vitest";
import { VmmArena } from "../../src/arena/arena.js";
import { hostBackend } from "../../src/arena/host-backend.js";
import { openCheckpoint } from "../../src/checkpoint/open.js";
import { loadCheckpoint } from "../../src/loader/load-checkpoint.js";
import type { LoadOptions } from "../../src/loader/options.js";
import { streamCheckpoint } from "../../src/loader/stream-checkpoint.js";
import { type Tensors, writeCheckpoint, writeShards } from "../support/loading.js";
import { describeNixl } from "../support/nixl.js";
import { pattern } from "../support/safetensors.js";

const tensors: Tensors = Object.fromEntries(
  [0, 1, 300_000, 5000, 70_001].map((bytes, at) => [`layer.${at}`, { dtype: "U8", shape: [bytes], bytes: pattern(`layer.${at}`, bytes) }]),
);

function expectRight(found: Iterable<{ readonly name: string; bytes(): Uint8Array }>, from: Tensors): number {
  let count = 0;
  for (const tensor of found) {
    expect([tensor.name, Buffer.compare(tensor.bytes(), from[tensor.name]?.bytes ?? Buffer.of(1))]).toEqual([tensor.name, 0]);
    count++;
  }
  return count;
}

describeNixl("the driver nixl", (library) => {
  beforeEach(() => {
    vi.stubEnv("MX_NIXL_LIBRARY", library);
  });

  it("loads shards by the POSIX plugin, and says so", async () => {
    const second: Tensors = { late: { dtype: "U8", shape: [9999], bytes: pattern("late", 9999) } };
    const path = writeShards([tensors, second]);
    await using model = await loadCheckpoint(path, { driver: "nixl", maxChunkBytes: 65_536, threads: 2 });
    expect(expectRight(model.tensors.values(), { ...tensors, ...second })).toBe(6);
    expect(model.report.driver).toEqual({ asked: "nixl", used: ["nixl"] });
    expect(model.report.nixl).toMatchObject({ plugin: "POSIX", windows: 2, registrations: { count: 4, bytes: 385_001 } });
    expect(model.report.nixl).not.toHaveProperty("path");
    expect([model.report.bytesFromCache, model.report.shards.map(({ used }) => used)]).toEqual([null, [["nixl"], ["nixl"]]]);
  });

  it("streams", async () => {
    const seen: string[] = [];
    for await (const tensor of streamCheckpoint(writeCheckpoint(tensors), { driver: "nixl", maxBytes: 400_000 })) {
      expectRight([tensor], tensors);
      seen.push(tensor.name);
    }
    expect(seen).toEqual(Object.keys(tensors));
  });

  it("refuses a file that changed since its header was read, and leaves nothing behind", async () => {
    const path = writeCheckpoint(tensors);
    const checkpoint = await openCheckpoint(path);
    appendFileSync(path, "x");
    const arena = new VmmArena({ backend: hostBackend(), totalBytes: 2 ** 26 });
    const before = readdirSync("/proc/self/fd").length;
    const error = await loadCheckpoint(checkpoint, { driver: "nixl", arena }).catch((thrown) => thrown);
    expect(error).toMatchObject({ code: "ERR_TRANSFER_FILE_CHANGED", file: path });
    await error.settled;
    expect([arena.liveAllocationCount, readdirSync("/proc/self/fd").length]).toEqual([0, before]);
    arena.close();
  });

  it("stops at an abort and at a deadline", async () => {
    const path = writeCheckpoint(tensors);
    const arena = new VmmArena({ backend: hostBackend(), totalBytes: 2 ** 26 });
    const abort = new AbortController();
    const loading = loadCheckpoint(path, { driver: "nixl", arena, maxChunkBytes: 4096, signal: abort.signal });
    setTimeout(() => abort.abort(new Error("enough")), 1);
    const error = await loading.catch((thrown) => thrown);
    expect(error).toMatchObject({ code: "ERR_ABORTED", cause: { message: "enough" } });
    await error.settled;
    const late = await loadCheckpoint(path, { driver: "nixl", arena, timeoutMs: 5 }).catch((thrown) => thrown);
    expect(late).toMatchObject({ code: "ERR_TRANSFER_TIMEOUT" });
    await late.settled;
    expect(arena.liveAllocationCount).toBe(0);
    arena.close();
  });

  it.each<[LoadOptions, string]>([
    [{ driver: "nixl", plugin: "NOSUCH" }, "ERR_NIXL_PLUGIN"],
    [{ driver: "nixl", plugin: "" }, "ERR_OPTION_INVALID"],
    [{ driver: "pread", plugin: "POSIX" }, "ERR_OPTION_CONFLICT"],
  ])("refuses %o", async (options, code) => {
    await expect(loadCheckpoint(writeCheckpoint(tensors), options)).rejects.toMatchObject({ code });
  });

  it("lists the plugins that there are where one is named that is not", async () => {
    const error = await loadCheckpoint(writeCheckpoint(tensors), { driver: "nixl", plugin: "NOSUCH" }).catch((thrown) => thrown);
    expect(error.message).toMatch(/^the plugin NOSUCH cannot be used .*; NIXL has the plugins .*\bPOSIX\b/);
  });

  it("tells every place where NIXL was looked for when it is missing", async () => {
    vi.stubEnv("MX_NIXL_LIBRARY", "/nowhere/libnixl_capi.so");
    const error = await loadCheckpoint(writeCheckpoint(tensors), { driver: "nixl" }).catch((thrown) => thrown);
    expect(error).toMatchObject({ code: "ERR_NIXL_NOT_FOUND" });
    expect(error.message).toMatch(/pip install nixl-cu12[\s\S]*\/nowhere\/libnixl_capi\.so \(MX_NIXL_LIBRARY\): .*No such file/);
    expect(error.tried).toEqual([
      { path: "/nowhere/libnixl_capi.so", from: "MX_NIXL_LIBRARY", why: expect.stringContaining("No such file") },
    ]);
  });
});
