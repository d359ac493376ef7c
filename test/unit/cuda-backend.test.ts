import { rmSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { VmmArena } from "../../src/arena/arena.js";
import { cudaBackend, cudaFacts } from "../../src/arena/cuda-backend.js";
import { givenBack } from "../../src/arena/giving-back.js";
import { hostBackend } from "../../src/arena/host-backend.js";
import { CudaError } from "../../src/errors.js";
import { awaitNative } from "../../src/native/failure.js";
import { standInCuda } from "../support/cuda.js";
import { collectEvents } from "../support/events.js";
import { type Ledger, readLedger } from "../support/fakes.js";
import { makeFolder } from "../support/folders.js";

const MiB = 1024 * 1024;
const folder = makeFolder();
const file = join(folder, "ledger");
let library = "";

/** What was called since `before`. */
const callsSince = (before: Ledger) => readLedger(file).calls.slice(before.calls.length);

beforeAll(() => {
  library = standInCuda({ ledger: file, plan: "devices=2;fabric=not-permitted;device-bytes=67108864;reserve-bytes=35184372088832" });
});
// What native threads tell arrives at a later turn of the event loop.
afterEach(() => sleep(20));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe("the driver library", () => {
  it("tells where it lies, its version and its devices", async () => {
    const device = {
      totalBytes: 64 * MiB,
      computeCapability: "9.0",
      virtualMemory: true,
      posixHandles: true,
      fabricHandles: true,
      gpuDirectRdma: true,
      dmaBuf: true,
    };
    expect(await cudaFacts({ library })).toEqual({
      library,
      driverVersion: expect.stringMatching(/^1\d\.\d$/),
      devices: [
        { name: "Stand-in GPU 0", ...device },
        { name: "Stand-in GPU 1", ...device },
      ],
    });
  });

  it("that is not there is an error that says what was tried", async () => {
    const missing = cudaFacts({ library: join(folder, "libcuda.so.1") });
    await expect(missing).rejects.toThrow(CudaError);
    await expect(missing).rejects.toMatchObject({ code: "ERR_CUDA_LIBRARY", tried: expect.stringContaining("No such file") });
  });

  it("is taken from MX_CUDA_LIBRARY", async () => {
    vi.stubEnv("MX_CUDA_LIBRARY", library);
    expect((await cudaFacts()).library).toBe(library);
  });

  it("without the functions is an error that names them", async () => {
    await expect(cudaFacts({ library: "libc.so.6" })).rejects.toMatchObject({
      code: "ERR_CUDA_SYMBOLS",
      missing: expect.stringMatching(/^cuInit, .*, cuMemSetAccess\b/),
    });
  });
});

describe("cudaBackend", () => {
  it.each([-1, 0.5, Number.NaN, 10_000, "cuda", "cuda:", "cuda:01", "cuda:-1", "host", "0", null])("refuses %s as a device", (device) => {
    expect(() => cudaBackend({ device: device as number })).toThrow(
      expect.objectContaining({ code: "ERR_OPTION_INVALID", option: "device" }),
    );
  });

  it("touches no driver before it is used, and then says what is wrong with the device", () => {
    const backend = cudaBackend({ device: "cuda:7", library });
    expect([backend.memory, backend.device]).toEqual(["device", "cuda:7"]);
    expect(() => new VmmArena({ backend })).toThrow(expect.objectContaining({ code: "ERR_CUDA_DEVICE", device: "cuda:7", deviceCount: 2 }));
  });

  it("allocates on its own device, whole handles that network cards reach", () => {
    const before = readLedger(file);
    using arena = new VmmArena({ backend: cudaBackend({ device: "cuda:1", library }), totalBytes: 64 * MiB });
    expect([arena.memory, arena.device, arena.nativeMemory, arena.nativeHost]).toEqual(["device", "cuda:1", true, false]);
    arena.malloc(3 * MiB);
    const created = callsSince(before).filter(({ name, status }) => name === "cuMemCreate" && status === 0);
    expect(created.map(({ facts }) => facts)).toEqual([expect.stringContaining(`size=${4 * MiB} device=1 types=1 rdma=1`)]);
  });

  it("asks for FABRIC handles once, and says once that there are none", async () => {
    const events = collectEvents();
    const before = readLedger(file);
    using arena = new VmmArena({ backend: cudaBackend({ device: 0, library }), totalBytes: 64 * MiB });
    for (let at = 0; at < 3; at++) arena.malloc(1);
    const types = callsSince(before).flatMap(({ name, facts }) => (name === "cuMemCreate" ? [/types=\d/.exec(facts)?.[0]] : []));
    expect(types).toEqual(["types=8", "types=1", "types=1", "types=1"]);
    await vi.waitFor(() => expect(events.map(({ event }) => event)).toContain("cuda.fabric-unavailable"));
    await sleep(20);
    expect(events.filter(({ event }) => event === "cuda.fabric-unavailable")).toEqual([
      {
        event: "cuda.fabric-unavailable",
        device: "cuda:0",
        handleType: "posix-file",
        reason: expect.stringMatching(/^cuMemCreate failed with CUDA_ERROR_NOT_PERMITTED \(.+\)$/),
      },
    ]);
  });

  it("out of memory is an error that changes nothing", () => {
    using arena = new VmmArena({ backend: cudaBackend({ device: 0, library }) });
    const address = arena.malloc(48 * MiB);
    expect(() => arena.malloc(32 * MiB)).toThrow(
      expect.objectContaining({
        code: "ERR_CUDA_OUT_OF_MEMORY",
        operation: "cuMemCreate",
        status: "CUDA_ERROR_OUT_OF_MEMORY",
        device: "cuda:0",
        length: 32 * MiB,
        address: `0x${(address + BigInt(48 * MiB)).toString(16)}`,
      }),
    );
    expect([arena.usedBytes, arena.mappedBytes, arena.liveAllocationCount]).toEqual([80 * MiB, 48 * MiB, 1]);
    arena.free(address);
    arena.malloc(64 * MiB);
  });

  it("a reserve that the driver refuses says how to go on", () => {
    const backend = cudaBackend({ device: 0, library });
    expect(() => new VmmArena({ backend, totalBytes: 2 ** 46 })).toThrow(
      expect.objectContaining({
        code: "ERR_CUDA_RESERVE_REFUSED",
        operation: "cuMemAddressReserve",
        message: expect.stringMatching(/^70368744177664 bytes .*totalBytes/),
      }),
    );
    new VmmArena({ backend, totalBytes: 2 ** 45 }).close();
  });

  it("its memory is not the host's: no view of it can be made", () => {
    using arena = new VmmArena({ backend: cudaBackend({ device: 0, library }), totalBytes: 64 * MiB });
    const address = arena.malloc(1);
    expect(() => arena.view(address, 1)).toThrow(expect.objectContaining({ code: "ERR_ARENA_NOT_LOADABLE" }));
  });

  it("one allocation can be one region of a network card, two cannot where dmabuf spans one handle", async () => {
    const before = readLedger(file);
    using arena = new VmmArena({ backend: cudaBackend({ device: 0, library }), totalBytes: 64 * MiB });
    const [first, second] = [arena.malloc(4 * MiB), arena.malloc(1)];
    await arena.native.proveOneRegion(first, 4 * MiB);
    await arena.native.proveOneRegion(second, 2 * MiB);
    await expect(awaitNative(() => arena.native.proveOneRegion(first, 6 * MiB))).rejects.toEqual(
      expect.objectContaining({ code: "ERR_CUDA_REGION", operation: "cuMemGetHandleForAddressRange", length: 6 * MiB, device: "cuda:0" }),
    );
    const tried = callsSince(before).filter(({ name }) => name === "cuMemGetHandleForAddressRange");
    expect(tried.map(({ status }) => status === 0)).toEqual([true, true, false]);
    using host = new VmmArena({ backend: hostBackend(), totalBytes: 64 * MiB });
    await host.native.proveOneRegion(host.malloc(1), 2 * MiB);
  });

  it("an arena that becomes unreachable gives everything back", async () => {
    await givenBack();
    const inArenas = () => readLedger(file).open.filter(({ kind }) => kind !== "context").length;
    expect(inArenas()).toBe(0);
    (() => new VmmArena({ backend: cudaBackend({ device: 0, library }), totalBytes: 64 * MiB }).malloc(1))();
    expect(inArenas()).toBe(3);
    await vi.waitFor(
      () => {
        globalThis.gc?.();
        expect(inArenas()).toBe(0);
      },
      { timeout: 10_000 },
    );
  });
});
