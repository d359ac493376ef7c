import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { errorCodes } from "../../src/error-codes.js";
import { cCallerPath } from "../support/c-caller.js";
import { fakesEnv, fakesFolder, type Ledger, readLedger } from "../support/fakes.js";
import { root, temporaryFolder } from "../support/folders.js";
import { runNode } from "../support/run-node.js";

/**
 * An arena's life on CUDA. Prints the library, what was thrown where, what was published as failed,
 * and the counters at the end.
 */
const life = `
import { VmmArena } from ${JSON.stringify(`${root}dist/arena/arena.js`)};
import { cudaBackend, cudaFacts } from ${JSON.stringify(`${root}dist/arena/cuda-backend.js`)};
import { subscribe } from "node:diagnostics_channel";
const MiB = 1024 * 1024;
const told = { library: null, thrown: [], published: [], counters: null };
subscribe("modelexpress", (message) => {
  if (message.event === "arena.release-failed") told.published.push([message.operation, message.error.code, message.error.operation]);
});
function attempt(step, work) {
  try {
    return work();
  } catch (error) {
    told.thrown.push([step, error.code, error.operation ?? null, error.status ?? null]);
  }
}
try {
  told.library = (await cudaFacts()).library;
} catch (error) {
  told.thrown.push(["facts", error.code, error.operation ?? null, error.status ?? null]);
}
const arena = attempt("new", () => new VmmArena({ backend: cudaBackend({ device: 0 }) }));
if (arena) {
  const first = attempt("malloc", () => arena.malloc(1));
  attempt("malloc", () => arena.malloc(3 * MiB));
  if (first !== undefined) arena.free(first);
  attempt("malloc", () => arena.malloc(2 * MiB));
  attempt("close", () => arena.close());
  attempt("close again", () => arena.close());
  await arena[Symbol.asyncDispose]().catch((error) => told.thrown.push(["wait", error.code, error.operation ?? null, error.status ?? null]));
  told.counters = [arena.usedBytes, arena.mappedBytes, arena.liveAllocationCount, arena.state];
}
console.log(JSON.stringify(told));
`;

interface Told {
  readonly library: string | null;
  readonly thrown: readonly (readonly [step: string, code: string, operation: string | null, status: string | null])[];
  readonly published: readonly (readonly [operation: string, code: string, call: string])[];
  readonly counters: readonly unknown[] | null;
}

async function live(plan: string): Promise<{ told: Told; ledger: Ledger }> {
  const file = join(temporaryFolder(), "ledger");
  const { code, signal, stdout, stderr } = await runNode(life, { env: fakesEnv({ plan, ledger: file }) });
  expect([plan, code, signal, stderr]).toEqual([plan, 0, null, ""]);
  return { told: JSON.parse(stdout) as Told, ledger: readLedger(file) };
}

/**
 * What a call that failed was to give back, and what the driver keeps because of that: more than
 * this is never left.
 */
const leftBy: Readonly<Record<string, readonly string[]>> = {
  cuMemUnmap: ["mapping", "reservation"],
  cuMemRelease: ["handle"],
  cuMemAddressFree: ["reservation"],
  cuDevicePrimaryCtxRelease_v2: ["context"],
};

/** Mappings go before their handles, both before the reserve, the context last. */
function requireOrder({ events }: Ledger): void {
  const order = ["mapping", "handle", "reservation", "context"];
  const open: string[] = [];
  for (const { what, kind, id } of events) {
    if (what === "opened") open.push(`${kind} ${id}`);
    else {
      open.splice(open.indexOf(`${kind} ${id}`), 1);
      if (kind === "reservation") expect(open.filter((thing) => thing.startsWith("mapping"))).toEqual([]);
    }
  }
  const last = events.filter(({ what }) => what === "closed").map(({ kind }) => order.indexOf(kind));
  const reserveAt = last.indexOf(order.indexOf("reservation"));
  if (reserveAt >= 0) expect(last.slice(reserveAt).every((place) => place >= order.indexOf("reservation"))).toBe(true);
}

describe("an arena's life on CUDA", () => {
  it("leaves nothing", async () => {
    const { told, ledger } = await live("fabric=supported");
    expect(told).toEqual({
      library: join(fakesFolder(), "libcuda.so.1"),
      thrown: [],
      published: [],
      counters: [8 * 1024 * 1024, 0, 0, "closed"],
    });
    expect([ledger.open, ledger.killed, ledger.ended]).toEqual([[], undefined, true]);
    expect(ledger.counts).toMatchObject({ cuMemAddressReserve: 1, cuMemCreate: 3, cuMemMap: 3, cuMemSetAccess: 3, cuMemUnmap: 3 });
    expect(ledger.counts).toMatchObject({ cuMemRelease: 3, cuMemAddressFree: 1 });
    requireOrder(ledger);
  });

  it("survives the failure of any call of any function", { timeout: 240_000 }, async () => {
    const { ledger: clean } = await live("fabric=not-permitted");
    const faults = Object.entries(clean.counts)
      .filter(([name]) => !name.startsWith("cuGetError"))
      .flatMap(([name, count]) => Array.from({ length: count }, (_, at) => ({ name, n: at + 1 })));
    expect(faults.length).toBeGreaterThan(60);
    const sweep = async () => {
      for (let fault = faults.shift(); fault !== undefined; fault = faults.shift()) {
        const { name, n } = fault;
        const plan = `${name}#${n}=CUDA_ERROR_LAUNCH_FAILED`;
        const { told, ledger } = await live(`fabric=not-permitted;${plan}`);
        expect([plan, ledger.faults.length, ledger.killed]).toEqual([plan, 1, undefined]);
        const codes = [...told.thrown, ...told.published].map(([, code]) => code);
        for (const code of codes) expect([plan, code]).toEqual([plan, expect.stringMatching(/^ERR_CUDA_/)]);
        expect(codes.every((code) => code in errorCodes)).toBe(true);
        const left = ledger.open.map(({ kind }) => kind).sort();
        expect([plan, left]).toEqual([plan, [...(leftBy[name] ?? [])].sort()]);
        if (told.counters !== null) expect([plan, ...told.counters.slice(1)]).toEqual([plan, 0, 0, "closed"]);
        requireOrder(ledger);
        // Nothing fails silently, save what has nobody to be told, or is tried again.
        const silent = ["cuCtxPopCurrent_v2", "cuDevicePrimaryCtxRelease_v2", "cuCtxGetCurrent", "cuCtxPushCurrent_v2"].includes(name);
        expect([plan, silent || codes.length > 0]).toEqual([plan, true]);
        // Both halves of a release are tried.
        if (name === "cuMemUnmap") expect([plan, ledger.counts.cuMemRelease]).toEqual([plan, clean.counts.cuMemRelease]);
      }
    };
    await Promise.all([sweep(), sweep()]);
  });

  it.each([
    ["FABRIC is refused by status", "fabric=supported;cuMemCreate#1=CUDA_ERROR_NOT_SUPPORTED", [8, 1, 1, 1]],
    ["this host has no FABRIC", "fabric=not-permitted", [8, 1, 1, 1]],
    ["the device knows no FABRIC", "fabric=not-supported", [1, 1, 1]],
    ["the host has FABRIC", "fabric=supported", [8, 8, 8]],
  ])("falls back from FABRIC once, and only where it is refused: %s", async (_, plan, types) => {
    const { told, ledger } = await live(plan);
    expect(told.thrown).toEqual([]);
    const asked = ledger.calls.filter(({ name }) => name === "cuMemCreate").map(({ facts }) => Number(/types=(\d+)/.exec(facts)?.[1] ?? 8));
    expect(asked).toEqual(types);
    expect(ledger.open).toEqual([]);
  });

  it("runs out of memory half way, and asks for FABRIC again where that proved nothing", async () => {
    const { told, ledger } = await live("fabric=supported;cuMemCreate#1=CUDA_ERROR_OUT_OF_MEMORY;cuMemCreate#3=CUDA_ERROR_OUT_OF_MEMORY");
    const failure = ["malloc", "ERR_CUDA_OUT_OF_MEMORY", "cuMemCreate", "CUDA_ERROR_OUT_OF_MEMORY"];
    expect(told.thrown).toEqual([failure, failure]);
    const granted = ledger.calls.filter(({ name, status }) => name === "cuMemCreate" && status === 0);
    expect(granted.map(({ facts }) => /types=\d/.exec(facts)?.[0])).toEqual(["types=8"]);
    expect(ledger.open).toEqual([]);
  });

  it("tells both failures of a release, in close and in free", async () => {
    const { told, ledger } = await live("fabric=supported;cuMemUnmap#*=CUDA_ERROR_UNKNOWN;cuMemRelease#*=CUDA_ERROR_UNKNOWN");
    expect(told.published).toEqual([
      ["free", "ERR_CUDA_RELEASE", "cuMemUnmap"],
      ["close", "ERR_CUDA_RELEASE", "cuMemUnmap"],
      ["close", "ERR_CUDA_RELEASE", "cuMemUnmap"],
      ["close", "ERR_CUDA_RELEASE", "cuMemAddressFree"],
    ]);
    expect(told.thrown).toEqual([["wait", "ERR_CUDA_RELEASE", "cuMemUnmap", "CUDA_ERROR_UNKNOWN"]]);
    expect(ledger.counts).toMatchObject({ cuMemUnmap: 3, cuMemRelease: 3, cuMemAddressFree: 1 });
  });

  it("is closed at once though the driver takes its time, and what it holds is waited for where memory is short", async () => {
    const script = `
      import { VmmArena } from ${JSON.stringify(`${root}dist/arena/arena.js`)};
      import { cudaBackend } from ${JSON.stringify(`${root}dist/arena/cuda-backend.js`)};
      const open = () => new VmmArena({ backend: cudaBackend({ device: 0 }), totalBytes: 2 ** 22 });
      const [first, second] = [open(), open()];
      first.malloc(2 ** 22);
      first.close();
      const { state, mappedBytes, liveAllocationCount } = first;
      console.log(JSON.stringify({ state, mappedBytes, liveAllocationCount }));
      if (process.argv[2] === "wait") console.log(second.malloc(2 ** 22) === second.base, second.usedBytes);
      process.exit(0);`;
    const closed = '{"state":"closed","mappedBytes":0,"liveAllocationCount":0}\n';
    const run = (way: string, plan: string) => runNode(script, { args: [way], env: fakesEnv({ plan }) });
    expect(await run("exit", "cuMemUnmap#1=hang")).toMatchObject({ code: 0, stdout: closed, stderr: "" });
    const waited = await run("wait", "device-bytes=4194304;cuMemUnmap#1=block:100");
    expect(waited).toMatchObject({ code: 0, stdout: `${closed}true 4194304\n`, stderr: "" });
  });

  it("says what it is when there is no driver, no device, or no context", async () => {
    for (const [plan, code, operation] of [
      ["cuInit#*=CUDA_ERROR_NO_DEVICE", "ERR_CUDA_NOT_INITIALIZED", "cuInit"],
      ["devices=0", "ERR_CUDA_NOT_INITIALIZED", "cuInit"],
      ["cuDevicePrimaryCtxRetain#*=CUDA_ERROR_OUT_OF_MEMORY", "ERR_CUDA_NO_CONTEXT", "cuDevicePrimaryCtxRetain"],
      ["cuCtxPushCurrent_v2#*=CUDA_ERROR_CONTEXT_IS_DESTROYED", "ERR_CUDA_NO_CONTEXT", "cuCtxPushCurrent"],
    ] as const) {
      const { told, ledger } = await live(plan);
      expect([plan, told.thrown.at(-1)?.slice(0, 3)]).toEqual([plan, ["new", code, operation]]);
      expect([plan, ledger.open]).toEqual([plan, []]);
    }
  });

  it.each([1, 2, 3])("loses nothing under threads of C whose allocations fail at every step (seed %i)", async (seed) => {
    const script = `
      import { VmmArena } from ${JSON.stringify(`${root}dist/arena/arena.js`)};
      import { cudaBackend } from ${JSON.stringify(`${root}dist/arena/cuda-backend.js`)};
      import { nativeLibraryPath, setActiveArena } from ${JSON.stringify(`${root}dist/arena/active-arena.js`)};
      import { subscribe } from "node:diagnostics_channel";
      const codes = new Set();
      subscribe("modelexpress", (message) => message.error && codes.add(message.error.code));
      const arena = new VmmArena({ backend: cudaBackend({ device: 0 }) });
      setActiveArena(arena);
      const c = { exports: {} };
      process.dlopen(c, ${JSON.stringify(cCallerPath())});
      c.exports.open(nativeLibraryPath);
      c.exports.start(4, 1, 0, 0);
      while (arena.usedBytes < 200 * 2 ** 21) await new Promise((resolve) => setTimeout(resolve, 1));
      setActiveArena(null);
      while (!arena.closed) {
        try {
          arena.close();
        } catch (error) {
          if (error.code !== "ERR_ARENA_BUSY") throw error;
          await new Promise((resolve) => setImmediate(resolve));
        }
      }
      await arena[Symbol.asyncDispose]();
      const [given, refused] = c.exports.stop();
      await new Promise((resolve) => setTimeout(resolve, 20));
      console.log(JSON.stringify([given > 0, refused > 0, arena.mappedBytes, [...codes].sort()]));`;
    const file = join(temporaryFolder(), "ledger");
    const faults = ["cuMemCreate#1/7=CUDA_ERROR_OUT_OF_MEMORY", "cuMemMap#1/5=CUDA_ERROR_UNKNOWN", "cuMemSetAccess#1/5=CUDA_ERROR_UNKNOWN"];
    const env = fakesEnv({ plan: [`seed=${seed}`, "fabric=not-permitted", ...faults], ledger: file });
    const { code, signal, stdout, stderr } = await runNode(script, { env });
    expect([code, signal, stderr]).toEqual([0, null, ""]);
    const codes = ["ERR_CUDA_ALLOCATE", "ERR_CUDA_OUT_OF_MEMORY"];
    expect(JSON.parse(stdout)).toEqual([true, true, 0, codes]);
    const ledger = readLedger(file);
    expect([ledger.open, ledger.killed]).toEqual([[], undefined]);
    expect(new Set(ledger.faults.map(({ name }) => name))).toEqual(new Set(["cuMemCreate", "cuMemMap", "cuMemSetAccess"]));
    expect(ledger.calls.filter(({ name, facts }) => name === "cuMemCreate" && facts.includes("types=8")).length).toBe(1);
  });
});
