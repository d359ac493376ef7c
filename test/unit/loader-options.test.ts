import { describe, expect, it, vi } from "vitest";
import { VmmArena } from "../../src/arena/arena.js";
import { hostBackend } from "../../src/arena/host-backend.js";
import { StubBackend } from "../../src/arena/stub-backend.js";
import type { DriverName } from "../../src/envs.js";
import { loadCheckpoint } from "../../src/loader/load-checkpoint.js";
import type { LoadOptions } from "../../src/loader/options.js";
import { type StreamOptions, streamCheckpoint } from "../../src/loader/stream-checkpoint.js";
import { addon } from "../../src/native/load.js";
import { collectEvents } from "../support/events.js";
import { HostMemoryBackend } from "../support/host-memory-backend.js";
import { errorFrom, planFaults, writeCheckpoint } from "../support/loading.js";

const tensors = { a: { dtype: "F32", shape: [10] }, b: { dtype: "U8", shape: [3] } } as const;
const MIB = 2 ** 20;

/** Values that a caller without types could give. */
const wrong: readonly (readonly [option: string, value: unknown, code: string])[] = [
  ["driver", "warp", "ERR_OPTION_UNKNOWN"],
  ["driver", 5, "ERR_OPTION_INVALID"],
  ["device", "cuda", "ERR_OPTION_INVALID"],
  ["device", "cuda:", "ERR_OPTION_INVALID"],
  ["device", "cuda:01", "ERR_OPTION_INVALID"],
  ["device", "cuda:-1", "ERR_OPTION_INVALID"],
  ["device", "CUDA:0", "ERR_OPTION_INVALID"],
  ["device", 1, "ERR_OPTION_INVALID"],
  ["threads", 0, "ERR_OPTION_INVALID"],
  ["threads", -1, "ERR_OPTION_INVALID"],
  ["threads", 1.5, "ERR_OPTION_INVALID"],
  ["threads", 1025, "ERR_OPTION_INVALID"],
  ["threads", "2", "ERR_OPTION_INVALID"],
  ["threads", Number.NaN, "ERR_OPTION_INVALID"],
  ["timeoutMs", -1, "ERR_OPTION_INVALID"],
  ["timeoutMs", 2 ** 31, "ERR_OPTION_INVALID"],
  ["timeoutMs", Number.POSITIVE_INFINITY, "ERR_OPTION_INVALID"],
  ["closeTimeoutMs", -1, "ERR_OPTION_INVALID"],
  ["closeTimeoutMs", "1", "ERR_OPTION_INVALID"],
  ["signal", {}, "ERR_OPTION_INVALID"],
  ["onProgress", true, "ERR_OPTION_INVALID"],
  ["arena", {}, "ERR_OPTION_INVALID"],
  ["maxChunkBytes", 0, "ERR_OPTION_INVALID"],
  ["maxChunkBytes", 4095, "ERR_OPTION_INVALID"],
  ["maxChunkBytes", "8MiB", "ERR_OPTION_INVALID"],
  ["placement", "tight", "ERR_OPTION_UNKNOWN"],
  ["placement", 1, "ERR_OPTION_INVALID"],
  ["alignmentBytes", 0, "ERR_OPTION_INVALID"],
  ["alignmentBytes", 3, "ERR_OPTION_INVALID"],
  ["alignmentBytes", 4 * MIB, "ERR_OPTION_INVALID"],
  ["alignmentBytes", "256", "ERR_OPTION_INVALID"],
  ["include", 5, "ERR_OPTION_INVALID"],
  ["exclude", [5], "ERR_OPTION_INVALID"],
];

describe("a wrong option is refused before anything is allocated", () => {
  it.each(wrong)("%s: %j", async (option, value, code) => {
    const path = writeCheckpoint(tensors);
    addon();
    const events = collectEvents();
    const options = { [option]: value } as LoadOptions;
    const error = await errorFrom(loadCheckpoint(path, options));
    expect(error).toMatchObject({ code, option, name: "OptionError" });
    expect(error.message).toContain(option);
    expect(await errorFrom(streamCheckpoint(path, options).next())).toMatchObject({ code, option });
    expect(events).toEqual([]);
  });

  it("an option that does not exist, with the names of those that do", async () => {
    const error = await errorFrom(loadCheckpoint(writeCheckpoint(tensors), { thread: 2 } as LoadOptions));
    expect(error).toMatchObject({ code: "ERR_OPTION_UNKNOWN", option: "thread" });
    expect(error.message).toMatch(/threads, timeoutMs/);
  });

  it("options that are no object", async () => {
    for (const options of [null, 5, "auto"]) {
      const given = options as unknown as StreamOptions;
      expect(await errorFrom(loadCheckpoint("nowhere", given))).toMatchObject({ code: "ERR_OPTION_INVALID" });
      expect(await errorFrom(streamCheckpoint("nowhere", given).next())).toMatchObject({ code: "ERR_OPTION_INVALID" });
    }
  });

  it("maxBytes, which is an option of streams alone", async () => {
    const path = writeCheckpoint(tensors);
    expect(await errorFrom(loadCheckpoint(path, { maxBytes: 1 } as LoadOptions))).toMatchObject({
      code: "ERR_OPTION_UNKNOWN",
      option: "maxBytes",
    });
    for (const maxBytes of [0, -5, 1.5, "1", Number.NaN]) {
      const options = { maxBytes } as StreamOptions;
      expect(await errorFrom(streamCheckpoint(path, options).next())).toMatchObject({ code: "ERR_OPTION_INVALID", option: "maxBytes" });
    }
  });

  it("a name that no tensor has", async () => {
    const events = collectEvents();
    expect(await errorFrom(loadCheckpoint(writeCheckpoint(tensors), { include: "c" }))).toMatchObject({ code: "ERR_PLAN_TENSOR_UNKNOWN" });
    expect(events).toEqual([]);
  });
});

describe("what can be checked without a checkpoint", () => {
  it.each<[string, unknown]>([
    ["placement", "tight"],
    ["alignmentBytes", 3],
    ["maxChunkBytes", 1],
    ["include", "a[b"],
    ["exclude", []],
    ["device", "cuda"],
  ])("%s is checked before a file is looked at", async (option, value) => {
    const options = { [option]: value } as LoadOptions;
    expect(await errorFrom(loadCheckpoint("/nowhere/at/all", options))).toMatchObject({ option, name: "OptionError" });
  });
});

describe("what excludes each other", () => {
  it.each<DriverName>(["pread", "io_uring", "map"])("the driver %s and a device", async (driver) => {
    const error = await errorFrom(loadCheckpoint("/nowhere", { device: "cuda:1", driver }));
    expect(error).toMatchObject({ code: "ERR_OPTION_CONFLICT", option: "driver", driver, device: "cuda:1" });
    expect(error.message).toBe(`driver "${driver}" cannot load to cuda:1: use one of auto, nixl, staged`);
  });

  it("the driver staged and the host, also as the environment's default", async () => {
    const staged = await errorFrom(loadCheckpoint("/nowhere", { driver: "staged" }));
    expect(staged).toMatchObject({ code: "ERR_OPTION_CONFLICT", option: "driver" });
    expect(staged.message).toBe('driver "staged" cannot load to host: use one of auto, pread, io_uring, map, nixl');
    vi.stubEnv("MX_DRIVER", "pread");
    expect(await errorFrom(loadCheckpoint("/nowhere", { device: "cuda:0" }))).toMatchObject({ code: "ERR_OPTION_CONFLICT" });
    vi.unstubAllEnvs();
  });

  it("a plugin for host memory and a device", async () => {
    const error = await errorFrom(loadCheckpoint("/nowhere", { device: "cuda:0", driver: "nixl", plugin: "POSIX" }));
    expect(error).toMatchObject({ code: "ERR_OPTION_CONFLICT", option: "plugin" });
    expect(error.message).toContain("GDS_MT");
  });

  it("a device and an arena somewhere else", async () => {
    using arena = new VmmArena({ backend: hostBackend(), totalBytes: 16 * MIB });
    const error = await errorFrom(loadCheckpoint("/nowhere", { device: "cuda:0", arena }));
    expect(error).toMatchObject({ code: "ERR_OPTION_CONFLICT", option: "device", arenaDevice: "host" });
    await using model = await loadCheckpoint(writeCheckpoint(tensors), { device: "host", arena });
    expect(model.report.device).toBe("host");
  });

  it.each<[string, LoadOptions]>([
    ["placement", { placement: "aligned" }],
    ["alignmentBytes", { alignmentBytes: 256 }],
  ])("the driver map and %s", async (option, options) => {
    const error = await errorFrom(loadCheckpoint(writeCheckpoint(tensors), { ...options, driver: "map" }));
    expect(error).toMatchObject({ code: "ERR_OPTION_CONFLICT", option });
  });

  it("the driver map and an arena over a backend written in TypeScript", async () => {
    using arena = new VmmArena({ backend: new HostMemoryBackend(), totalBytes: 16 * MIB });
    const error = await errorFrom(loadCheckpoint(writeCheckpoint(tensors), { driver: "map", arena }));
    expect(error).toMatchObject({ code: "ERR_OPTION_CONFLICT", option: "arena" });
    expect(arena.usedBytes).toBe(0);
  });

  it("the driver map and a stream", async () => {
    const error = await errorFrom(streamCheckpoint(writeCheckpoint(tensors), { driver: "map" }).next());
    expect(error).toMatchObject({ code: "ERR_OPTION_CONFLICT", option: "driver" });
  });

  it("nothing else: map with packed or auto placement loads", async () => {
    for (const placement of ["packed", "auto"] as const) {
      await using model = await loadCheckpoint(writeCheckpoint(tensors), { driver: "map", placement });
      expect(model.tensors.size).toBe(2);
    }
  });
});

describe("arenas that cannot be loaded into", () => {
  it("are those whose memory is not the host's", async () => {
    const backend = new StubBackend();
    using arena = new VmmArena({ backend, totalBytes: 16 * MIB });
    expect(await errorFrom(loadCheckpoint(writeCheckpoint(tensors), { arena }))).toMatchObject({ code: "ERR_ARENA_NOT_LOADABLE" });
    expect(backend.allocations).toEqual([]);
  });

  it("are closed ones", async () => {
    const arena = new VmmArena({ backend: hostBackend(), totalBytes: 16 * MIB });
    arena.close();
    expect(await errorFrom(loadCheckpoint(writeCheckpoint(tensors), { arena }))).toMatchObject({ code: "ERR_ARENA_CLOSED" });
  });

  it("are too small ones, and they stay as they were", async () => {
    using arena = new VmmArena({ backend: hostBackend(), totalBytes: 2 * MIB });
    const path = writeCheckpoint({ a: { dtype: "U8", shape: [3 * MIB] } });
    expect(await errorFrom(loadCheckpoint(path, { arena }))).toMatchObject({ code: "ERR_ARENA_EXHAUSTED" });
    expect(arena).toMatchObject({ closed: false, usedBytes: 0, liveAllocationCount: 0 });
  });
});

describe("the environment", () => {
  it("sets driver and threads where no option does", async () => {
    vi.stubEnv("MX_DRIVER", "pread");
    vi.stubEnv("MX_THREADS", "3");
    const path = writeCheckpoint(tensors);
    await using model = await loadCheckpoint(path);
    expect(model.report).toMatchObject({ driver: { asked: "pread" }, threads: 3 });
    await using other = await loadCheckpoint(path, { driver: "map", threads: 1 });
    expect(other.report).toMatchObject({ driver: { asked: "map", used: ["map"] }, threads: 1 });
  });

  it("sets the deadline, in seconds; the option in milliseconds wins", async () => {
    vi.stubEnv("MX_DRIVER", "pread");
    vi.stubEnv("MX_TIMEOUT", "0.05");
    planFaults({ nth: 1, stallMs: 200 });
    const path = writeCheckpoint(tensors);
    expect(await errorFrom(loadCheckpoint(path))).toMatchObject({ code: "ERR_TRANSFER_TIMEOUT", timeoutMs: 50 });
    for (const timeoutMs of [0, 20_000]) {
      await using model = await loadCheckpoint(path, { timeoutMs });
      expect(model.tensors.size).toBe(2);
    }
  });

  it.each([
    ["MX_DRIVER", "warp"],
    ["MX_THREADS", "none"],
    ["MX_TIMEOUT", "soon"],
  ])("with a value that is not allowed is an error: %s=%s", async (name, value) => {
    vi.stubEnv(name, value);
    expect(await errorFrom(loadCheckpoint(writeCheckpoint(tensors)))).toMatchObject({ code: "ERR_ENV_INVALID", option: name });
  });

  it("has as many threads as processors by default, at most 16", async () => {
    await using model = await loadCheckpoint(writeCheckpoint(tensors));
    expect(model.report.threads).toBe(Math.min(16, addon().availableParallelism()));
  });
});
