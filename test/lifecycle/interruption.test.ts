import { describe, expect, it } from "vitest";
import { root } from "../support/folders.js";
import { runNode } from "../support/run-node.js";

const parts = `
  import { VmmArena } from ${JSON.stringify(`${root}dist/arena/arena.js`)};
  import { hostBackend } from ${JSON.stringify(`${root}dist/arena/host-backend.js`)};
  import { readFileSync } from "node:fs";
  const virtualBytes = () => Number(/VmSize:\\s+(\\d+)/.exec(readFileSync("/proc/self/status", "utf8"))[1]) * 1024;
  /** A backend of the host's memory, in JavaScript. */
  class Wrapped {
    memory = "host"; live = new Set(); inner = hostBackend();
    allocationGranularity() { return this.inner.allocationGranularity(); }
    reserve(bytes) { return this.inner.reserve(bytes); }
    allocate(va, bytes) { const handle = this.inner.allocate(va, bytes); this.live.add(va); return handle; }
    deallocate(va, bytes, handle) { this.live.delete(va); this.inner.deallocate(va, bytes, handle); }
    releaseReserve(base, bytes) { this.inner.releaseReserve(base, bytes); }
  }`;
/** Address space of an arena of these tests: nothing else of their processes is as large. */
const totalBytes = 2 ** 42;

describe.each(["hostBackend()", "new Wrapped()"])("over %s", (backend) => {
  it("the end of the stack tears nothing apart, at whatever depth an arena is used", async () => {
    const script = `${parts}
      const before = virtualBytes();
      const arena = new VmmArena({ backend: ${backend}, totalBytes: ${totalBytes} });
      const addresses = Array.from({ length: 3000 }, () => arena.malloc(4096));
      let refused = 0;
      function deep(work) {
        try { deep(work); } catch (error) { if (!(error instanceof RangeError)) throw error; }
        try { work(); } catch (error) { if (!(error instanceof RangeError)) throw error; refused++; }
      }
      deep(() => { if (addresses.length > 1000) arena.free(addresses.pop()); });
      deep(() => { if (arena.liveAllocationCount < 2000) addresses.push(arena.malloc(4096)); });
      const view = new Uint8Array(arena.view(arena.malloc(4096), 4096)).fill(1);
      deep(() => arena.close());
      arena.close();
      // What is given back on a native thread.
      const kept = () => virtualBytes() - before > ${totalBytes / 2};
      for (let turn = 0; kept() && turn < 1000; turn++) await new Promise((resolve) => setTimeout(resolve, 10));
      console.log(JSON.stringify({ refused: refused > 0, closed: arena.closed, kept: kept(), viewed: view.length }));`;
    // The view is used to the end: one that is collected meanwhile would be refused as one whose
    // memory was moved.
    expect(await runNode(script)).toMatchObject({ stdout: '{"refused":true,"closed":true,"kept":false,"viewed":0}\n', code: 0 });
  });

  it("what a backend throws at any call leaves an arena that can be closed", async () => {
    const script = `${parts}
      class Failing extends Wrapped {
        calls = 0;
        #call() { if (++this.calls % 3 === 0) throw new Error("planned"); }
        allocate(...args) { this.#call(); return super.allocate(...args); }
        deallocate(...args) { super.deallocate(...args); this.#call(); }
        releaseReserve(...args) { super.releaseReserve(...args); this.#call(); }
      }
      const told = [];
      for (let skip = 0; skip < 3; skip++) {
        const before = virtualBytes(), backend = new Failing();
        backend.calls = skip;
        const arena = new VmmArena({ backend, totalBytes: ${totalBytes} });
        const addresses = [];
        for (let round = 0; round < 6; round++) try { addresses.push(arena.malloc(1)); } catch {}
        arena.free(addresses.pop());
        try { arena.close(); } catch {}
        arena.close();
        told.push([arena.closed, backend.live.size, virtualBytes() - before > ${totalBytes / 2}]);
      }
      console.log(JSON.stringify(told));`;
    const expected = `${JSON.stringify(Array.from({ length: 3 }, () => [true, 0, false]))}\n`;
    expect(await runNode(script)).toMatchObject({ stdout: expected, code: 0 });
  });
});

it.each([
  ["allocates and frees", "for (;;) arena.free(arena.malloc(4096));"],
  ["opens and closes arenas", "for (;;) { const own = make(); new Uint8Array(own.view(own.malloc(4096), 4096))[0] = 1; own.close(); }"],
  ["holds memory", "arena.malloc(4096); setInterval(() => {}, 1000);"],
])(
  "a worker that %s can be terminated at any moment, and leaves no mapping",
  async (_what, work) => {
    const worker = `${parts}
    const { parentPort } = await import("node:worker_threads");
    const make = () => new VmmArena({ backend: hostBackend(), totalBytes: ${totalBytes} });
    const arena = make();
    parentPort.postMessage("ready");
    ${work}`;
    const script = `${parts}
    import { once } from "node:events";
    import { Worker } from "node:worker_threads";
    const code = ${JSON.stringify(worker.replace(/import \{(.*?)\} from (.*?);/g, "const {$1} = await import($2);"))};
    async function terminate(turns) {
      const worker = new Worker(code, { eval: true });
      await once(worker, "message");
      for (let turn = 0; turn < turns; turn++) await new Promise((resolve) => setImmediate(resolve));
      await worker.terminate();
    }
    await terminate(1);
    const before = virtualBytes();
    for (let round = 0; round < 8; round++) await terminate(round * 5);
    console.log(virtualBytes() - before > ${totalBytes / 2});`;
    expect(await runNode(script, { timeoutMs: 60_000 })).toMatchObject({ stdout: "false\n", code: 0 });
  },
  60_000,
);
