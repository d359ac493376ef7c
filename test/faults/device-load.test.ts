import { createHash } from "node:crypto";
import { closeSync, ftruncateSync, openSync, readSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { Ledger } from "../support/fakes.js";
import { makeFolder } from "../support/folders.js";
import { type DeviceRun, type DeviceTold, loadOnDevice } from "../support/load-on-device.js";
import { type Tensors, writeCheckpoint, writeShards } from "../support/loading.js";
import { describeNixl } from "../support/nixl.js";
import { byteLengthOf, pattern, rawHeader } from "../support/safetensors.js";
import { planned, sweep } from "../support/sweep.js";

const MIB = 2 ** 20;
const first: Tensors = { a: { dtype: "F32", shape: [70_000] }, b: { dtype: "U8", shape: [333] }, none: { dtype: "F32", shape: [0] } };
const second: Tensors = { c: { dtype: "BF16", shape: [70_001] } };
const third: Tensors = { d: { dtype: "I64", shape: [9] } };
const shards = [first, second, third];

const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");
const right = Object.fromEntries(
  shards
    .flatMap((tensors) => Object.entries(tensors))
    .map(([name, { dtype, shape }]) => [name, sha256(pattern(name, byteLengthOf(dtype, shape)))]),
);
/** What `isGdsAvailable` looks for besides the libraries. */
const nvidiaFs = { "/proc/modules": ["ext4 1 1 - Live 0x0\nnvidia_fs 262144 0 - Live 0x0\n"] };
const device = "cuda:0";

function expectLoaded(told: DeviceTold, ledger: Ledger): void {
  expect([told.thrown, told.published, told.digests, told.device]).toEqual([[], [], right, device]);
  expect([ledger.open, ledger.killed, ledger.ended]).toEqual([[], undefined, true]);
}

describeNixl("a load to a device by the real GDS_MT over the stand-ins", (nixl) => {
  it("brings every byte into one allocation, and tells registrations, windows, time and path", async () => {
    const path = writeShards(shards);
    const { told, ledger } = await loadOnDevice(
      path,
      { device, driver: "nixl", maxChunkBytes: 65_536, threads: 2 },
      { nixl, copies: true },
    );
    expectLoaded(told, ledger);
    expect(told.report).toMatchObject({
      device,
      driver: { asked: "nixl", used: ["nixl"] },
      hugePageBytes: null,
      bytesFromCache: null,
      reads: 10,
      nixl: {
        plugin: "GDS_MT",
        windows: 3,
        // Three files, and the memory of three windows.
        registrations: { count: 6, bytes: 420_407, ms: expect.any(Number) },
        path: { taken: "unknown", why: "/proc/driver/nvidia-fs/stats cannot be read" },
      },
    });
    expect(ledger.counts).toMatchObject({ cuMemCreate: 1, cuFileHandleRegister: 3, cuFileRead: 10, nixl_capi_create_xfer_req: 3 });
  });

  it("takes threads, chunks and deadline of GDS_MT from MX_GDS_*, and options over them", async () => {
    const path = writeShards(shards);
    const env = { MX_GDS_THREADS: "3", MX_GDS_MAX_CHUNK_KB: "128", MX_GDS_TIMEOUT: "60" };
    const reader = { event: "gds.agent-created", agent: "mx-load", plugin: "GDS_MT", device };
    for (const driver of ["nixl", "auto"] as const) {
      const { told, ledger } = await loadOnDevice(path, { device, driver }, { nixl, kernelFiles: nvidiaFs, env });
      expectLoaded(told, ledger);
      expect(told.gds).toEqual([{ ...reader, threads: 3, maxChunkBytes: 131_072 }]);
      // Three, one, two and one of a, b, c and d.
      expect([told.report?.reads, ledger.counts.cuFileRead]).toEqual([7, 7]);
    }
    const given = await loadOnDevice(path, { device, driver: "nixl", threads: 2, maxChunkBytes: 65_536 }, { nixl, env });
    expect(given.told.gds).toEqual([{ ...reader, threads: 2, maxChunkBytes: 65_536 }]);
    const staged = await loadOnDevice(path, { device, driver: "staged" }, { nixl, env: { ...env, MX_GDS_THREADS: "none" } });
    expectLoaded(staged.told, staged.ledger);
    const unset = await loadOnDevice(path, { device, driver: "nixl", threads: 2 }, { nixl });
    expect(unset.told.gds).toEqual([{ ...reader, threads: 2, maxChunkBytes: 8 * MIB }]);
  });

  it("takes the longest read there is for a longer chunk, and tells so", async () => {
    const { told, ledger } = await loadOnDevice(
      writeShards(shards),
      { device, driver: "nixl", maxChunkBytes: 2 ** 31 },
      { nixl, env: { MX_GDS_THREADS: "5000" } },
    );
    expectLoaded(told, ledger);
    expect(told.gds).toMatchObject([
      { event: "option.clamped", option: "MX_GDS_THREADS", given: 5000, used: 1024 },
      { event: "option.clamped", option: "maxChunkBytes", given: 2 ** 31, used: 2 ** 30 },
      { event: "gds.agent-created", threads: 1024, maxChunkBytes: 2 ** 30 },
    ]);
  });

  it("gives a window up that GDS_MT has not read in the time of MX_GDS_TIMEOUT", async () => {
    const { told } = await loadOnDevice(
      writeShards(shards),
      { device, driver: "nixl" },
      { nixl, plan: "cuFileRead#1=block:1500", env: { MX_GDS_TIMEOUT: "100ms" } },
    );
    expect(told.thrown).toMatchObject([
      { step: "load", code: "ERR_TRANSFER_TIMEOUT", message: expect.stringContaining("(MX_GDS_TIMEOUT)") },
    ]);
    expect(told.settled).toBe(true);
  });

  it("registers the next file while the present one is read", async () => {
    // 769 chunks, since the first ends at a block of the file: four windows.
    const long: Tensors = { long: { dtype: "U8", shape: [3 * MIB] } };
    const { told, ledger } = await loadOnDevice(
      writeShards([long, second]),
      { device, driver: "nixl", maxChunkBytes: 4096, threads: 1 },
      { nixl, plan: "cuFileRead#*=block:1" },
    );
    expect([told.thrown, told.digests]).toEqual([[], { long: sha256(pattern("long", 3 * MIB)), c: right.c }]);
    expect([told.report?.nixl?.windows, ledger.open]).toEqual([5, []]);
    const order = ledger.calls.map(({ name, n }) => `${name} ${n}`);
    // In the first of its windows, and not only when its own turn comes.
    expect(order.indexOf("cuFileHandleRegister 2")).toBeLessThan(order.indexOf("cuFileRead 256"));
  });

  it("survives the failure of any call of any function", { timeout: 300_000 }, async () => {
    const path = writeCheckpoint({ a: { dtype: "F32", shape: [30_000] }, c: { dtype: "U8", shape: [5] } });
    const run = async (plan: string) => {
      const { told, ledger } = await loadOnDevice(path, { device, driver: "nixl", closeTimeoutMs: 1000 }, { nixl, plan });
      return { thrown: told.thrown.map(({ code }) => code), published: told.published.map(([, code]) => code), told, ledger };
    };
    const clean = await run("");
    expect([clean.thrown, clean.ledger.open]).toEqual([[], []]);
    expect(planned(clean.ledger.counts).length).toBeGreaterThan(70);
    await sweep(clean.ledger.counts, async (plan) => {
      const swept = await run(plan);
      if (swept.thrown.length === 0) expect([plan, swept.told.digests]).toEqual([plan, clean.told.digests]);
      return swept;
    });
  });

  it.each([
    ["deadline", { timeoutMs: 3000 }, {}, "ERR_TRANSFER_TIMEOUT"],
    ["abort", {}, { abortAtFault: true }, "ERR_ABORTED"],
    ["deadline, under auto", { timeoutMs: 3000, driver: "auto" }, { kernelFiles: nvidiaFs }, "ERR_TRANSFER_TIMEOUT"],
  ] as const)("ends a read that hangs by its %s, and unmaps nothing under it", async (_, options, run, code) => {
    const load = { device, driver: "nixl", maxChunkBytes: 65_536, threads: 2, ...options } as const;
    const { told, ledger } = await loadOnDevice(writeShards(shards), load, {
      nixl,
      plan: "cuFileRead#2=hang",
      awaitSettled: false,
      ...run,
    });
    expect(told.thrown.map(({ step, code }) => [step, String(code)])).toEqual([["load", code]]);
    expect(ledger.faults.length).toBe(1);
    expect([ledger.killed, ledger.counts.cuMemUnmap]).toEqual([undefined, undefined]);
    expect(ledger.open.map(({ kind }) => kind)).toEqual(expect.arrayContaining(["mapping", "cufile-file", "cufile-io"]));
  });

  it("gives everything back when a slow read of an aborted load has ended", async () => {
    const load = { device, driver: "nixl", maxChunkBytes: 65_536 } as const;
    const { told, ledger } = await loadOnDevice(writeShards(shards), load, { nixl, plan: "cuFileRead#2=block:1500", abortAtFault: true });
    expect([told.thrown.map(({ step }) => step), told.settled, ledger.open, ledger.killed]).toEqual([["load"], true, [], undefined]);
  });

  it("tells a short read with plugin and file", async () => {
    const path = writeCheckpoint(first);
    const { told, ledger } = await loadOnDevice(path, { device, driver: "nixl" }, { nixl, plan: "cuFileRead#*=short:100" });
    expect(told.thrown).toMatchObject([{ step: "load", code: "ERR_NIXL_TRANSFER", plugin: "GDS_MT", file: path }]);
    expect(ledger.open).toEqual([]);
  });

  it("loads into a caller's arena on the device, which says where, and frees only its own allocation", async () => {
    const run = { nixl, arena: device, copies: true } as const;
    const { told, ledger } = await loadOnDevice(writeShards(shards), { driver: "nixl" }, run);
    expectLoaded(told, ledger);
    expect([told.arena, told.report?.device]).toEqual([[0, true], device]);
    const other = await loadOnDevice(writeShards(shards), { device: "cuda:1", driver: "nixl" }, { ...run, plan: "devices=2" });
    expect(other.told.thrown.map(({ step, code }) => [step, code])).toEqual([["load", "ERR_OPTION_CONFLICT"]]);
    const mapped = await loadOnDevice(writeCheckpoint(third), { driver: "map" }, run);
    expect(mapped.told.thrown).toMatchObject([
      { step: "load", code: "ERR_OPTION_CONFLICT", message: expect.stringContaining("cannot load to cuda:0") },
    ]);
    expect(other.ledger.open).toEqual([]);
  });

  it("closes when copies to the host in flight have ended, and gives none afterwards", async () => {
    const run: DeviceRun = { nixl, copies: "late", plan: "cuMemcpyDtoH_v2#*=block:100" };
    const { told, ledger } = await loadOnDevice(writeShards(shards), { device, driver: "nixl" }, run);
    expect(told.thrown.map(({ step, code }) => [step, code])).toEqual([["copy after close", "ERR_TENSOR_RELEASED"]]);
    expect([told.digests, ledger.open, ledger.killed]).toEqual([right, [], undefined]);
    const stuck = await loadOnDevice(
      writeCheckpoint(third),
      { device, driver: "nixl", closeTimeoutMs: 100 },
      { ...run, plan: "cuMemcpyDtoH_v2#*=block:600" },
    );
    expect(stuck.told.thrown.map(({ step, code }) => [step, code])).toEqual([
      ["close", "ERR_TRANSFER_STUCK"],
      ["copy after close", "ERR_TENSOR_RELEASED"],
    ]);
    expect(stuck.ledger.killed).toBeUndefined();
  });

  it("goes to the device that was asked for", async () => {
    const { told, ledger } = await loadOnDevice(writeShards(shards), { device: "cuda:1", driver: "nixl" }, { nixl, plan: "devices=2" });
    expect([told.thrown, told.device, told.digests]).toEqual([[], "cuda:1", right]);
    expect(ledger.calls.find(({ name }) => name === "cudaSetDevice")?.facts).toMatch(/1/);
  });

  it("streams windows, and lets copies end before a window's place is filled anew", async () => {
    const many: Tensors = Object.fromEntries(Array.from({ length: 12 }, (_, at) => [`t.${at}`, { dtype: "U8", shape: [1_500_000 + at] }]));
    const expected = Object.fromEntries(Object.entries(many).map(([name, { shape }]) => [name, sha256(pattern(name, shape[0] ?? 0))]));
    const run: DeviceRun = { nixl, stream: true, copies: "late", plan: "cuMemcpyDtoH_v2#*=block:30" };
    const { told, ledger } = await loadOnDevice(writeCheckpoint(many), { device, driver: "nixl", maxBytes: 4 * MIB }, run);
    expect([told.thrown, told.digests, told.device]).toEqual([[], expected, device]);
    expect([ledger.open, ledger.killed]).toEqual([[], undefined]);
    // Two windows at most; a quick one is over before the next has opened its file.
    expect(ledger.peak["cufile-file"]?.things).toBeLessThanOrEqual(2);
  });

  it("brings two gibibytes", { timeout: 60_000 }, async () => {
    const folder = makeFolder();
    try {
      const { file, expected } = writeSparse(folder, { large: 1300 * MIB + 777, middle: 600 * MIB, small: 148 * MIB + 1 });
      const { told, ledger } = await loadOnDevice(file, { device, driver: "nixl" }, { nixl, timeoutMs: 50_000 });
      expect([told.thrown, told.digests, told.report?.bytes]).toEqual([[], expected, 2 ** 31 + 778]);
      expect([ledger.open, ledger.counts.cuMemCreate]).toEqual([[], 1]);
      // Two windows of 256 MiB.
      expect(ledger.peak["cufile-buffer"]?.bytes).toBeLessThanOrEqual(512 * MIB);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  describe("under auto", () => {
    const load = (run: DeviceRun) => loadOnDevice(writeShards(shards), { device }, { nixl, ...run });
    const reasons = (told: DeviceTold) => told.report?.shards.map(({ used, reason }) => [used.join(), reason]);

    it("is taken where the machine and every file say yes", async () => {
      const { told, ledger } = await load({ kernelFiles: nvidiaFs });
      expectLoaded(told, ledger);
      expect(told.report?.driver).toEqual({ asked: "auto", used: ["nixl"] });
      const yes = ["nixl", "GPUDirect Storage is available, and the file could be registered"];
      expect(reasons(told)).toEqual([yes, yes, yes]);
    });

    it("is not taken where the machine lacks something, and the report says what", async () => {
      const { told, ledger } = await load({ kernelFiles: { "/proc/modules": ["ext4 1 1 - Live 0x0\n"] } });
      expectLoaded(told, ledger);
      expect(told.report?.driver).toEqual({ asked: "auto", used: ["staged"] });
      const no = ["staged", expect.stringMatching(/^no GPUDirect Storage: the kernel module nvidia_fs is not loaded/)];
      expect([reasons(told), told.report?.nixl, ledger.counts.cuFileRead]).toEqual([[no, no, no], null, undefined]);
      const without = await loadOnDevice(writeShards(shards), { device }, { kernelFiles: nvidiaFs });
      expectLoaded(without.told, without.ledger);
      expect(reasons(without.told)?.[0]).toEqual([
        "staged",
        expect.stringMatching(/^no GPUDirect Storage: NIXL is not available .*: \/nowhere\/libnixl_capi\.so \(MX_NIXL_LIBRARY\): .*$/),
      ]);
    });

    it("is not taken for a file that cannot be registered, and is for the others", async () => {
      const { told, ledger } = await load({ kernelFiles: nvidiaFs, plan: "cuFileHandleRegister#2=CU_FILE_IO_NOT_SUPPORTED" });
      expectLoaded(told, ledger);
      // Two files are opened side by side: which comes second is not said.
      const [staged, ...others] = (reasons(told) ?? []).toSorted(([a], [b]) => (String(a) > String(b) ? -1 : 1));
      expect(staged).toEqual(["staged", expect.stringMatching(/^no GPUDirect Storage: .*cannot be registered with GDS_MT/)]);
      expect(others.map(([way]) => way)).toEqual(["nixl", "nixl"]);
      const none = await load({ kernelFiles: nvidiaFs, plan: "gds=refused" });
      expectLoaded(none.told, none.ledger);
      expect([none.told.report?.driver.used, none.told.report?.nixl]).toEqual([["staged"], null]);
    });

    it("is not taken where the plugin does not come up", async () => {
      const { told, ledger } = await load({ kernelFiles: nvidiaFs, plan: "cuFileDriverOpen#1=CU_FILE_DRIVER_NOT_INITIALIZED" });
      expectLoaded(told, ledger);
      expect(reasons(told)?.[0]).toEqual(["staged", expect.stringMatching(/^no GPUDirect Storage: .*GDS_MT/s)]);
    });

    it("survives the failure of any call of any function, by another way or with a code", { timeout: 300_000 }, async () => {
      const path = writeCheckpoint({ a: { dtype: "F32", shape: [30_000] }, c: { dtype: "U8", shape: [5] } });
      const run = async (plan: string) => {
        const { told, ledger } = await loadOnDevice(path, { device }, { nixl, plan, kernelFiles: nvidiaFs });
        return { thrown: told.thrown.map(({ code }) => code), published: told.published.map(([, code]) => code), told, ledger };
      };
      const clean = await run("");
      const used = new Set<string>();
      const swept = async (plan: string) => {
        const outcome = await run(plan);
        for (const way of outcome.told.report?.driver.used ?? []) used.add(way);
        if (outcome.thrown.length === 0) expect([plan, outcome.told.digests]).toEqual([plan, clean.told.digests]);
        return outcome;
      };
      await sweep(clean.ledger.counts, swept, true);
      expect([...used].sort()).toEqual(["nixl", "staged"]);
    });

    it("fails where a read fails: that is no reason to hide it", async () => {
      const { told, ledger } = await load({ kernelFiles: nvidiaFs, plan: "cuFileRead#2=CU_FILE_INTERNAL_ERROR" });
      expect(told.thrown).toMatchObject([{ step: "load", code: "ERR_NIXL_TRANSFER" }]);
      expect(ledger.open).toEqual([]);
    });

    it("is an error by name, with the file, where it cannot be registered", async () => {
      const { told, ledger } = await loadOnDevice(writeCheckpoint(first), { device, driver: "nixl" }, { nixl, plan: "gds=refused" });
      expect(told.thrown).toMatchObject([{ step: "load", code: "ERR_NIXL_REGISTER", file: expect.stringMatching(/model\.safetensors$/) }]);
      expect(ledger.open).toEqual([]);
    });
  });

  it("tells the path that nvidia-fs counted", async () => {
    const statistics = (reads: number, mib: number) =>
      `IO stats: Enabled, peer IO stats: Disabled\nActive Process: 1\nReads\t: n=${reads} ok=${reads} err=0 readMiB=${mib} io_state_err=0\n`;
    const path = writeCheckpoint({ a: { dtype: "U8", shape: [20 * MIB] } });
    const run = (before: string, after: string) =>
      loadOnDevice(path, { device, driver: "nixl" }, { nixl, kernelFiles: { "/proc/driver/nvidia-fs/stats": [before, after] } });
    const direct = await run(statistics(3, 100), statistics(23, 120));
    expect(direct.told.report?.nixl?.path).toEqual({ taken: "direct", why: expect.stringContaining("20 MiB in 20 reads") });
    const copied = await run(statistics(3, 100), statistics(3, 100));
    expect(copied.told.report?.nixl?.path?.taken).toBe("compatibility");
  });
});

describe("a load to a device that is not to be had", () => {
  it("is refused before anything is allocated where it has too little memory", async () => {
    const { told, ledger } = await loadOnDevice(writeCheckpoint(first), { device, driver: "nixl" }, { plan: "device-bytes=131072" });
    expect(told.thrown).toMatchObject([{ code: "ERR_MEMORY_WOULD_NOT_FIT", message: expect.stringContaining("free memory of cuda:0") }]);
    expect(ledger.counts.cuMemAddressReserve).toBeUndefined();
  });

  it.each([
    ["no such device", { device: "cuda:5" }, "", "ERR_CUDA_DEVICE"],
    ["memory that ran out", { device }, "cuMemCreate#1=CUDA_ERROR_OUT_OF_MEMORY", "ERR_CUDA_OUT_OF_MEMORY"],
    ["no NIXL", { device }, "", "ERR_NIXL_NOT_FOUND"],
    ["no driver", { device }, "cuInit#1=CUDA_ERROR_NO_DEVICE", "ERR_CUDA_NOT_INITIALIZED"],
  ] as const)("is refused with a code: %s", async (_, options, plan, code) => {
    const { told, ledger } = await loadOnDevice(writeCheckpoint(first), { driver: "nixl", ...options }, { plan });
    expect(told.thrown.map(({ step, code }) => [step, code])).toEqual([["load", code]]);
    expect([ledger.open, ledger.killed]).toEqual([[], undefined]);
  });
});

describe.each(["cuDevicePrimaryCtxRetain", "cuMemGetInfo_v2", "cuMemCreate"])("a driver that takes its time in %s", (call) => {
  const load = { device, driver: "staged" } as const;

  it("holds no event loop up", async () => {
    const { told, ledger } = await loadOnDevice(writeShards(shards), load, { plan: `${call}#1=block:1000` });
    expectLoaded(told, ledger);
    expect(told.turns).toBeGreaterThan(10);
  });

  it("holds up no abort, and what comes of it afterwards is given back", async () => {
    const { told, ledger } = await loadOnDevice(writeShards(shards), load, { plan: `${call}#1=block:1500`, abortAtFault: true });
    expect(told.thrown).toMatchObject([{ step: "load", code: "ERR_ABORTED" }]);
    expect([told.rejectedEarly, told.settled, ledger.open, ledger.killed]).toEqual([true, true, [], undefined]);
  });

  it("obeys a deadline", async () => {
    const { told, ledger } = await loadOnDevice(writeShards(shards), { ...load, timeoutMs: 500 }, { plan: `${call}#1=block:1500` });
    expect(told.thrown).toMatchObject([{ step: "load", code: "ERR_TRANSFER_TIMEOUT", message: expect.stringContaining("cuda:0") }]);
    expect([told.settled, ledger.open, ledger.killed]).toEqual([true, [], undefined]);
  });
});

/**
 * A file of holes, with a mark of its own in every mebibyte; and what its tensors' bytes hash to.
 */
function writeSparse(folder: string, lengths: Readonly<Record<string, number>>) {
  const header: Record<string, unknown> = {};
  let end = 0;
  for (const [name, length] of Object.entries(lengths)) {
    header[name] = { dtype: "U8", shape: [length], data_offsets: [end, end + length] };
    end += length;
  }
  const head = rawHeader(JSON.stringify(header));
  const file = join(folder, "model.safetensors");
  const fd = openSync(file, "w+");
  writeSync(fd, head, 0, head.length, 0);
  ftruncateSync(fd, head.length + end);
  for (let at = 0; at < end - MIB; at += MIB)
    writeSync(fd, Buffer.from(`mark ${at}`), 0, undefined, head.length + at + ((at / MIB) % 4096));
  const expected: Record<string, string> = {};
  const buffer = Buffer.alloc(MIB);
  let offset = head.length;
  for (const [name, length] of Object.entries(lengths)) {
    const hash = createHash("sha256");
    for (let done = 0; done < length; ) {
      const count = readSync(fd, buffer, 0, Math.min(MIB, length - done), offset + done);
      hash.update(buffer.subarray(0, count));
      done += count;
    }
    expected[name] = hash.digest("hex");
    offset += length;
  }
  closeSync(fd);
  return { file, expected };
}
