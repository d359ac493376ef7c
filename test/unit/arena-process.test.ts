import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { VmmArena } from "../../src/arena/arena.js";
import { hostBackend } from "../../src/arena/host-backend.js";
import { root } from "../support/folders.js";
import { processCounters } from "../support/process-counters.js";
import { runNode } from "../support/run-node.js";

const MiB = 1024 * 1024;
const parts = `
import { VmmArena } from ${JSON.stringify(`${root}dist/arena/arena.js`)};
import { hostBackend } from ${JSON.stringify(`${root}dist/arena/host-backend.js`)};
import { StubBackend } from ${JSON.stringify(`${root}dist/arena/stub-backend.js`)};
`;

const residentBytes = () => processCounters().residentBytes;

/** Access rights of the mapping that holds `address`, as /proc/self/maps writes them. */
function accessOf(address: bigint): string | undefined {
  for (const [, begin, end, access] of readFileSync("/proc/self/maps", "utf8").matchAll(/^([0-9a-f]+)-([0-9a-f]+) (\S+)/gm)) {
    if (BigInt(`0x${begin}`) <= address && address < BigInt(`0x${end}`)) return access;
  }
  return undefined;
}

describe("host memory", () => {
  it("is one reserve of any size, at a multiple of 2 MiB", () => {
    for (const totalBytes of [1, 2 * MiB, 1024 * MiB, 2 ** 44]) {
      using arena = new VmmArena({ backend: hostBackend(), totalBytes });
      expect(arena.base % BigInt(2 * MiB)).toBe(0n);
      expect(arena.totalBytes).toBe(Math.max(2 * MiB, totalBytes));
    }
  });

  it("comes when it is touched, and goes back when it is freed, addresses kept", () => {
    using arena = new VmmArena({ backend: hostBackend() });
    const address = arena.malloc(64 * MiB);
    expect(accessOf(address)).toBe("rw-p");
    const before = residentBytes();
    const view = new Uint8Array(arena.view(address, 64 * MiB)).fill(1);
    const huge = arena.native.hugePageBytes(address, 64 * MiB);
    expect(huge === null || (huge >= 0 && huge <= 64 * MiB && huge % (2 * MiB) === 0)).toBe(true);
    expect(residentBytes() - before).toBeGreaterThan(60 * MiB);
    arena.free(address);
    expect(view.length).toBe(0);
    expect(residentBytes() - before).toBeLessThan(16 * MiB);
    expect(accessOf(address)).toBe("---p");
  });

  // With vm.overcommit_memory = 1 the kernel promises anything.
  it.skipIf(readFileSync("/proc/sys/vm/overcommit_memory", "utf8").trim() === "1")(
    "more than the machine has is refused, and the arena goes on",
    () => {
      using arena = new VmmArena({ backend: hostBackend() });
      expect(() => arena.malloc(2 ** 43)).toThrow(
        expect.objectContaining({ code: "ERR_ARENA_OUT_OF_MEMORY", errno: "ENOMEM", operation: "mprotect", length: 2 ** 43 }),
      );
      expect([arena.usedBytes, arena.mappedBytes]).toEqual([2 ** 43, 0]);
      expect(arena.malloc(1)).toBe(arena.base + BigInt(2 ** 43));
    },
  );

  it("of other owners is not touched by the backend's methods", () => {
    const backend = hostBackend();
    const other = hostBackend();
    const g = backend.allocationGranularity();
    const base = backend.reserve(4 * g);
    const refused = expect.objectContaining({ code: "ERR_ARENA_ADDRESS" });
    expect(() => other.allocate(base, g)).toThrow(refused);
    expect(() => backend.allocate(base - BigInt(g), g)).toThrow(refused);
    expect(() => backend.allocate(base, 5 * g)).toThrow(refused);
    expect(() => backend.allocate(base + 1n, g)).toThrow(refused);
    expect(() => backend.deallocate(0n, g, 0n)).toThrow(refused);
    expect(() => backend.releaseReserve(base, g)).toThrow(refused);
    expect(() => other.releaseReserve(base, 4 * g)).toThrow(refused);
    const handle = backend.allocate(base + BigInt(g), 2 * g);
    backend.deallocate(base + BigInt(g), 2 * g, handle);
    backend.releaseReserve(base, 4 * g);
    expect(() => backend.releaseReserve(base, 4 * g)).toThrow(refused);
  });
});

describe("a process", () => {
  it("whose address space is limited gets a clear refusal, and less when it asks for less", async () => {
    const script = `${parts}
      const backend = hostBackend();
      try { new VmmArena({ backend }); } catch (error) { console.log(error.code, error.errno, error.operation, error.message); }
      const arena = new VmmArena({ backend, totalBytes: 64 << 20 });
      arena.malloc(1);
      arena.close();
      console.log(arena.state);`;
    const { code, stdout, stderr } = await runNode(script, { under: ["bash", "-c", 'ulimit -v 16000000; exec "$@"', "bash"] });
    expect(stderr).toBe("");
    const [refusal, state] = stdout.trim().split("\n");
    expect(refusal).toMatch(/^ERR_ARENA_RESERVE_REFUSED ENOMEM mmap 17592186044416 bytes .*totalBytes.*ulimit -v.*ENOMEM/);
    expect([state, code]).toEqual(["closed", 0]);
  });

  it("ends with arenas, allocations and views open", async () => {
    const script = `${parts}
      const host = new VmmArena({ backend: hostBackend() });
      globalThis.view = new Uint8Array(host.view(host.malloc(4 << 20), 4 << 20)).fill(1);
      globalThis.wrapped = new VmmArena({ backend: { ...methods(hostBackend()), memory: "host" } });
      globalThis.other = new Uint8Array(wrapped.view(wrapped.malloc(1), 1));
      globalThis.stub = new VmmArena({ backend: new StubBackend() });
      stub.malloc(1);
      function methods(inner) {
        return Object.fromEntries(["allocationGranularity", "reserve", "allocate", "deallocate", "releaseReserve"].map((name) => [name, (...values) => inner[name](...values)]));
      }
      console.log(stub.state, view[0], other[0]);`;
    expect(await runNode(script)).toEqual({ code: 0, signal: null, stdout: "open 1 0\n", stderr: "" });
  });

  it("keeps nothing of workers that end with arenas and views open", async () => {
    const script = `
      import { Worker, isMainThread } from "node:worker_threads";
      import { readFileSync } from "node:fs";
      import { fileURLToPath } from "node:url";
      import { once } from "node:events";
      ${parts}
      const virtualBytes = () => Number(/VmSize:\\s+(\\d+)/.exec(readFileSync("/proc/self/status", "utf8"))[1]) * 1024;
      if (isMainThread) {
        for (let round = 0; round < 6; round++) {
          const worker = new Worker(fileURLToPath(import.meta.url));
          if (round % 2 === 1) {
            await once(worker, "message");
            await worker.terminate();
          } else await once(worker, "exit");
        }
        console.log(virtualBytes() < 2 ** 40);
      } else {
        const { parentPort } = await import("node:worker_threads");
        const arena = new VmmArena({ backend: hostBackend(), totalBytes: 2 ** 40 });
        globalThis.view = new Uint8Array(arena.view(arena.malloc(4 << 20), 4 << 20)).fill(1);
        globalThis.stub = new VmmArena({ backend: new StubBackend() });
        stub.free(stub.malloc(1));
        parentPort.postMessage(virtualBytes() > 2 ** 40);
      }`;
    expect(await runNode(script)).toEqual({ code: 0, signal: null, stdout: "true\n", stderr: "" });
  });
});
