import { once } from "node:events";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { setImmediate, setTimeout as sleep } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { afterAll, afterEach, describe, expect, it, vi } from "vitest";
import { activeArena, nativeLibraryPath, setActiveArena } from "../../src/arena/active-arena.js";
import { VmmArena } from "../../src/arena/arena.js";
import { cudaBackend } from "../../src/arena/cuda-backend.js";
import { givenBack } from "../../src/arena/giving-back.js";
import { hostBackend } from "../../src/arena/host-backend.js";
import { StubBackend } from "../../src/arena/stub-backend.js";
import { addonPath } from "../../src/native/addon-path.js";
import { cCaller, cCallerPath } from "../support/c-caller.js";
import { standInCuda } from "../support/cuda.js";
import { collectEvents } from "../support/events.js";
import { fakesEnv, readLedger } from "../support/fakes.js";
import { makeFolder, root } from "../support/folders.js";
import { runNode } from "../support/run-node.js";

const MiB = 1024 * 1024;
const HOST = -1;
const folder = makeFolder();
const ledger = join(folder, "ledger");
const library = standInCuda({ ledger, plan: "devices=2" });
const c = cCaller();

const hostArena = (totalBytes = 2 ** 40) => new VmmArena({ backend: hostBackend(), totalBytes });
const cudaArena = (device = 0, totalBytes = 2 ** 44) => new VmmArena({ backend: cudaBackend({ device, library }), totalBytes });
const counters = (arena: VmmArena) => [arena.usedBytes, arena.mappedBytes, arena.liveAllocationCount];

afterEach(async () => {
  setActiveArena(null);
  // What native threads tell arrives at a later turn of the event loop.
  await sleep(20);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe("mx_malloc and mx_free, called from C on threads of its own", () => {
  it("lie in the library that Node has loaded", () => {
    expect(nativeLibraryPath).toBe(addonPath());
  });

  it("give null without an active arena, and do nothing", () => {
    expect([c.malloc(1, HOST), c.malloc(1, 0)]).toEqual([0n, 0n]);
    c.free(0n, 1, HOST);
    c.free(0x1000n, 1, HOST);
  });

  it("act on the active arena", () => {
    using arena = hostArena();
    setActiveArena(arena);
    expect(activeArena()).toBe(arena);
    const address = c.malloc(3 * MiB, HOST, true);
    expect(address).toBe(arena.base);
    expect(counters(arena)).toEqual([4 * MiB, 4 * MiB, 1]);
    expect(c.malloc(1, HOST)).toBe(arena.base + BigInt(4 * MiB));
    c.free(address + 1n, 1, HOST);
    c.free(address, 3 * MiB, HOST);
    c.free(address, 3 * MiB, HOST);
    expect(counters(arena)).toEqual([6 * MiB, 2 * MiB, 1]);
    setActiveArena(null);
    expect([c.malloc(1, HOST), activeArena()]).toEqual([0n, null]);
  });

  it("leave an arena that is no longer active alone", () => {
    using first = hostArena();
    using second = hostArena();
    setActiveArena(first);
    const address = c.malloc(1, HOST);
    setActiveArena(null);
    setActiveArena(second);
    c.free(address, 1, HOST);
    expect(c.malloc(1, HOST)).toBe(second.base);
    expect([first.liveAllocationCount, second.liveAllocationCount]).toEqual([1, 1]);
  });

  it("stay with an active arena that is open when another is set, from JavaScript's own backends too", () => {
    using first = hostArena();
    using second = hostArena();
    using scripted = new VmmArena({ backend: new StubBackend() });
    setActiveArena(first);
    setActiveArena(first);
    for (const other of [second, scripted]) {
      expect(() => setActiveArena(other)).toThrow(expect.objectContaining({ code: "ERR_ARENA_ACTIVE" }));
    }
    expect([activeArena(), c.malloc(1, HOST)]).toEqual([first, first.base]);
    first.close();
    setActiveArena(second);
    expect(c.malloc(1, HOST)).toBe(second.base);
    setActiveArena(null);
    setActiveArena(scripted);
    expect(() => setActiveArena(first)).toThrow(expect.objectContaining({ code: "ERR_ARENA_CLOSED" }));
    expect(() => setActiveArena(second)).toThrow(expect.objectContaining({ code: "ERR_ARENA_ACTIVE" }));
  });

  it("give memory of the arena's own device only", () => {
    using arena = cudaArena(1);
    setActiveArena(arena);
    expect([c.malloc(1, 0), c.malloc(1, HOST), c.malloc(1, 2)]).toEqual([0n, 0n, 0n]);
    const address = c.malloc(1, 1);
    expect(address).toBe(arena.base);
    c.free(address, 1, 1);
    expect(counters(arena)).toEqual([2 * MiB, 0, 0]);
  });

  it("give device memory whose bytes JavaScript can copy", async () => {
    using arena = cudaArena();
    setActiveArena(arena);
    // The stand-in's device memory can be written from C.
    const address = c.malloc(3 * MiB, 0, true);
    const bytes = await arena.native.copyToHost(address + BigInt(2 * MiB), 2 * MiB);
    expect(bytes.length).toBe(2 * MiB);
    expect([bytes[0], bytes[MiB - 1], bytes[MiB], bytes[2 * MiB - 1]]).toEqual([0x5a, 0x5a, 0, 0]);
    await expect(arena.native.copyToHost(address, 4 * MiB + 1)).rejects.toThrow("ERR_ARENA_ADDRESS");
  });

  it("tell JavaScript what C is not told, each refusal once", async () => {
    const events = collectEvents();
    using arena = cudaArena(0, 2 * MiB);
    setActiveArena(arena);
    for (let round = 0; round < 3; round++) {
      expect([c.malloc(0, 0), c.malloc(-5, 0), c.malloc(1, 1), c.malloc(4 * MiB, 0)]).toEqual([0n, 0n, 0n, 0n]);
    }
    const failures = () => events.filter(({ event }) => event === "arena.c-call-failed");
    await vi.waitFor(() => expect(failures().length).toBeGreaterThanOrEqual(3));
    await sleep(20);
    expect(failures().map(({ operation, error }) => [operation, (error as { code: string }).code])).toEqual([
      ["mx_malloc", "ERR_ARENA_SIZE"],
      ["mx_malloc", "ERR_ARENA_DEVICE"],
      ["mx_malloc", "ERR_ARENA_EXHAUSTED"],
    ]);
    expect(events.filter(({ event }) => event === "arena.active")).toMatchObject([{ device: "cuda:0" }]);
  });

  it("free with the last view what JavaScript looks at", () => {
    const events = collectEvents();
    using arena = hostArena();
    setActiveArena(arena);
    const address = c.malloc(1, HOST, true);
    const view = new Uint8Array(arena.view(address, 1));
    c.free(address, 1, HOST);
    expect([view[0], arena.liveAllocationCount]).toEqual([0x5a, 1]);
    expect(() => arena.view(address, 1)).toThrow(expect.objectContaining({ code: "ERR_ARENA_ADDRESS" }));
    arena.endViews(address, 1);
    expect([view.length, arena.liveAllocationCount]).toEqual([0, 0]);
    expect(events.filter(({ event }) => event === "arena.c-call-failed")).toEqual([]);
  });

  it("give null for an arena over a backend in JavaScript, which says so once", () => {
    const events = collectEvents();
    const stub = new StubBackend();
    using arena = new VmmArena({ backend: stub });
    setActiveArena(arena);
    expect([c.malloc(1, 0), c.malloc(1, HOST)]).toEqual([0n, 0n]);
    c.free(arena.base, 1, 0);
    expect(stub.allocations).toEqual([]);
    expect(events.filter(({ event }) => event !== "arena.reserve")).toEqual([
      {
        event: "arena.active-unusable",
        address: "0x10000000000000",
        device: "host",
        message: expect.stringContaining("mx_malloc gives null"),
      },
    ]);
  });

  it("give null once the arena is closed, which cannot be set again", () => {
    const arena = hostArena();
    setActiveArena(arena);
    const address = c.malloc(1, HOST);
    arena.close();
    expect(c.malloc(1, HOST)).toBe(0n);
    c.free(address, 1, HOST);
    expect(() => setActiveArena(arena)).toThrow(expect.objectContaining({ code: "ERR_ARENA_CLOSED" }));
    expect(() => setActiveArena({} as VmmArena)).toThrow(expect.objectContaining({ code: "ERR_OPTION_INVALID" }));
  });

  it("keep the arena from being collected", async () => {
    setActiveArena(hostArena());
    for (let round = 0; round < 5; round++) {
      globalThis.gc?.();
      await sleep(5);
    }
    expect(c.malloc(1, HOST)).not.toBe(0n);
    activeArena()?.close();
  });

  it("work from a worker's arena on", async () => {
    const script = `
      const { parentPort, workerData } = require("node:worker_threads");
      import(workerData + "dist/arena/active-arena.js").then(async ({ setActiveArena }) => {
        const { VmmArena } = await import(workerData + "dist/arena/arena.js");
        const { hostBackend } = await import(workerData + "dist/arena/host-backend.js");
        const arena = new VmmArena({ backend: hostBackend(), totalBytes: 2 ** 30 });
        setActiveArena(arena);
        parentPort.postMessage(arena.base);
      });`;
    const worker = new Worker(script, { eval: true, workerData: root });
    const [base] = await once(worker, "message");
    expect(c.malloc(1, HOST, true)).toBe(base);
    for (const backend of [hostBackend(), new StubBackend()]) {
      using other = new VmmArena({ backend, totalBytes: 2 ** 30 });
      expect(() => setActiveArena(other)).toThrow(expect.objectContaining({ code: "ERR_ARENA_ACTIVE" }));
    }
    await worker.terminate();
    // What C holds stays, however the worker ended.
    expect(c.malloc(1, HOST, true)).toBe(base + BigInt(2 * MiB));
  });
});

/**
 * Closes an arena that threads allocate in: at once, or when the calls have ended that began before
 * it was no longer active.
 */
async function closeUnderCallers(arena: VmmArena): Promise<void> {
  const close = () => {
    try {
      arena.close();
    } catch (error) {
      expect(error).toMatchObject({ code: "ERR_ARENA_BUSY", operation: "close" });
    }
  };
  close();
  setActiveArena(null);
  while (!arena.closed) {
    close();
    await setImmediate();
  }
}

describe("many threads of C", () => {
  it("share an arena of the host, and it ends with nothing alive", async () => {
    using arena = hostArena(2 ** 44);
    setActiveArena(arena);
    c.start(6, 1, HOST, true);
    await sleep(150);
    const [given, refused] = c.stop();
    expect([given > 0, refused]).toEqual([true, 0]);
    expect(counters(arena)).toEqual([given * 2 * MiB, 0, 0]);
  });

  it("share an arena of a device", async () => {
    using arena = cudaArena();
    setActiveArena(arena);
    c.start(4, 1, 0, false);
    await sleep(150);
    const [given, refused] = c.stop();
    expect([given > 0, refused]).toEqual([true, 0]);
    expect(counters(arena)).toEqual([given * 2 * MiB, 0, 0]);
  });

  it.each(["host", "cuda"])("are refused when the arena closes under them, and nothing is lost (%s)", async (kind) => {
    const device = kind === "host" ? HOST : 0;
    const touch = kind === "host";
    const other = kind === "host" ? hostArena() : cudaArena();
    for (let round = 0; round < 10; round++) {
      const arena = kind === "host" ? hostArena() : cudaArena();
      setActiveArena(arena);
      c.start(4, 1, device, false);
      while (arena.usedBytes < 40 * MiB) await sleep(1);
      await closeUnderCallers(arena);
      expect(counters(arena).slice(1)).toEqual([0, 0]);
      const used = arena.usedBytes;
      await sleep(2);
      expect(arena.usedBytes).toBe(used);
      const [given, refused] = c.stop();
      expect([given >= used / (2 * MiB), refused > 0]).toEqual([given > 0, true]);
    }
    // Between two arenas that stay open.
    using first = kind === "host" ? hostArena() : cudaArena();
    c.start(4, 1, device, touch);
    for (let round = 0; round < 50; round++) {
      setActiveArena(null);
      setActiveArena([first, other, null][round % 3] as VmmArena | null);
      await sleep(1);
    }
    c.stop();
    for (const arena of [first, other]) expect(arena.mappedBytes).toBe(arena.liveAllocationCount * 2 * MiB);
    other.close();
  });

  it.each(["host", "cuda"])("do not keep a process from ending well while they allocate (%s)", async (kind) => {
    const script = `
      import { VmmArena } from ${JSON.stringify(`${root}dist/arena/arena.js`)};
      import { nativeLibraryPath, setActiveArena } from ${JSON.stringify(`${root}dist/arena/active-arena.js`)};
      import { cudaBackend } from ${JSON.stringify(`${root}dist/arena/cuda-backend.js`)};
      import { hostBackend } from ${JSON.stringify(`${root}dist/arena/host-backend.js`)};
      const arena = new VmmArena({ backend: ${kind === "host" ? "hostBackend()" : "cudaBackend({ device: 0 })"} });
      setActiveArena(arena);
      const c = { exports: {} };
      process.dlopen(c, ${JSON.stringify(cCallerPath())});
      c.exports.open(nativeLibraryPath);
      c.exports.start(4, 1, ${kind === "host" ? HOST : 0}, 0);
      while (arena.usedBytes < 100 * 2 ** 21) await new Promise((resolve) => setTimeout(resolve, 1));
      console.log(arena.state);`;
    for (let round = 0; round < 3; round++) {
      const file = join(folder, `exit-${kind}-${round}`);
      const finished = await runNode(script, { env: fakesEnv({ ledger: file }) });
      expect(finished).toEqual({ code: 0, signal: null, stdout: "open\n", stderr: "" });
      expect(readLedger(file).killed).toBeUndefined();
    }
  });

  it("leave nothing behind in the driver", async () => {
    setActiveArena(null);
    await givenBack();
    // The context goes with the backend, whenever that is collected.
    expect(readLedger(ledger).open.filter(({ kind }) => kind !== "context")).toEqual([]);
  });
});
