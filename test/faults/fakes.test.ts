import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { fakesEnv, fakesProgram, type LedgerKind, readLedger } from "../support/fakes.js";
import { temporaryFolder } from "../support/folders.js";
import { runProgram } from "../support/run-node.js";

/**
 * Runs a scenario of a self-test; the C program checks every answer and says on stderr which was
 * wrong.
 */
async function run(program: "cuda" | "cudart" | "cufile", scenario: string, plan = "") {
  const ledger = join(temporaryFolder(), "ledger");
  const finished = await runProgram(fakesProgram(program), [scenario], { env: fakesEnv({ plan, ledger }) });
  return { ...finished, ledger: readLedger(ledger) };
}

const passed = { code: 0, signal: null, stderr: "" };

describe("the stand-ins keep the rules of the real libraries", () => {
  it.each([
    ["cuda", "before_init", ""],
    ["cuda", "contexts", "devices=2"],
    ["cuda", "devices", "devices=2;device-bytes=67108864"],
    ["cuda", "reserving", ""],
    ["cuda", "creating", "device-bytes=67108864"],
    ["cuda", "fabric_not_permitted", "fabric=not-permitted"],
    ["cuda", "fabric_supported", "fabric=supported"],
    ["cuda", "mapping", ""],
    ["cuda", "copying", ""],
    ["cuda", "streams", "async-ms=50"],
    ["cuda", "host_memory", ""],
    ["cuda", "sharing", ""],
    ["cuda", "dmabuf_any", "dmabuf=any"],
    ["cuda", "pointers", ""],
    ["cuda", "names", ""],
    ["cuda", "context_owns", ""],
    ["cudart", "rules", "devices=2;async-ms=50"],
    ["cufile", "driver", ""],
    ["cufile", "files", ""],
    ["cufile", "registering", "registered-bytes=3145728"],
    ["cufile", "reading", ""],
  ] as const)("%s: %s (%s)", async (program, scenario, plan) => {
    const { ledger, ...finished } = await run(program, scenario, plan);
    expect(finished).toMatchObject(passed);
    expect(ledger.open).toEqual([]);
    expect(ledger.ended).toBe(true);
  });

  it.each([
    ["cufile", "files_refused", "gds=refused"],
    ["cufile", "no_access", ""],
    ["cufile", "reading_short", "cuFileRead#2=short:512;cuFileRead#3=CU_FILE_NVFS_DRIVER_ERROR"],
  ] as const)("%s: %s (%s)", async (program, scenario, plan) => {
    expect(await run(program, scenario, plan)).toMatchObject(passed);
  });
});

describe("what would corrupt memory kills the process, and says why", () => {
  it.each([
    ["cuda", "unmap_under_copy", "async-ms=2000", /unmaps 0x\w+ .* is written by a copy in flight/],
    ["cuda", "free_under_copy", "async-ms=2000", /frees 0x\w+ .* is read by a copy in flight/],
    ["cufile", "unmap_under_read", "cuFileRead#1=block:5000", /unmaps 0x\w+ .* is read into by cuFile/],
    ["cufile", "deregister_buffer_under_read", "cuFileRead#1=block:5000", /deregisters 0x\w+ .* is read into by cuFile/],
    ["cufile", "deregister_file_under_read", "cuFileRead#1=block:5000", /deregisters the file of descriptor \d+ with 1 reads/],
    ["cufile", "close_driver_under_read", "cuFileRead#1=hang", /closes the cuFile driver with 1 reads/],
    ["cufile", "unmap_registered", "", /unmaps 0x\w+ .* is registered with cuFile/],
    ["cufile", "read_stale_handle", "", /uses a cuFile handle after it was deregistered/],
    ["cufile", "read_closed_descriptor", "", /whose descriptor \d+ was closed or is another file now/],
    ["cufile", "deregister_twice", "", /deregisters a file handle that is not registered/],
  ] as const)("%s: %s", async (program, scenario, plan, message) => {
    const { code, stderr, ledger } = await run(program, scenario, plan);
    expect(stderr).toMatch(message);
    expect(code).toBe(66);
    expect(ledger.killed).toMatch(message);
    expect(ledger.ended).toBe(false);
  });

  it("memory without access faults when the host touches it", async () => {
    expect(await run("cuda", "touch_without_access")).toMatchObject({ signal: "SIGSEGV" });
  });
});

describe("planned faults", () => {
  it("fail the calls that are named, and nothing else", async () => {
    const plan = "cuMemAlloc_v2#3=214;cuMemAlloc_v2#5+=CUDA_ERROR_OUT_OF_MEMORY;cuMemFree_v2#1=CUDA_ERROR_UNKNOWN";
    const { ledger, ...finished } = await run("cuda", "planned", plan);
    expect(finished).toMatchObject(passed);
    expect(ledger.counts.cuMemAlloc_v2).toBe(6);
    expect(ledger.faults).toEqual([
      { name: "cuMemAlloc_v2", n: 3, action: "status" },
      { name: "cuMemAlloc_v2", n: 5, action: "status" },
      { name: "cuMemAlloc_v2", n: 6, action: "status" },
      { name: "cuMemFree_v2", n: 1, action: "status" },
    ]);
    expect(ledger.calls.filter((call) => call.name === "cuMemAlloc_v2").map((call) => call.status)).toEqual([0, 0, 214, 0, 2, 2]);
  });

  it("drawn by a seed are the same for the same seed", async () => {
    const plan = (seed: number) => `seed=${seed};cuDriverGetVersion#1/4=CUDA_ERROR_UNKNOWN`;
    const first = await run("cuda", "drawn", plan(7));
    const again = await run("cuda", "drawn", plan(7));
    const other = await run("cuda", "drawn", plan(8));
    expect(first.stdout).toMatch(/^[x.]{100}$/);
    expect(again.stdout).toBe(first.stdout);
    expect(other.stdout).not.toBe(first.stdout);
    expect(first.ledger.faults).toHaveLength(first.stdout.split("x").length - 1);
  });

  it.each([
    ["cuMemMapp#1=2", "there is no function 'cuMemMapp'"],
    ["cuMemMap#0=2", "calls are counted from 1"],
    ["cuMemMap#3-2=2", "calls are counted from 1"],
    ["cuMemMap#2/4=2", "a chance is written 1/K"],
    ["cuMemMap#x=2", "'x' is no number"],
    ["cuMemMap#1=CU_FILE_INTERNAL_ERROR", "'CU_FILE_INTERNAL_ERROR' is no status of cuMemMap"],
    ["cuMemMap#1=12345", "12345 is no status of cuMemMap"],
    ["cuMemMap#1=short:5", "only cuFileRead and cuFileWrite can come short"],
    ["cuMemMap#1=block:", "'' is no number"],
    ["cuMemMap#1", "write NAME=VALUE or FUNCTION#WHEN=ACTION"],
    ["cuMemMap=2", "there is no setting 'cuMemMap', and a fault is written FUNCTION#WHEN=ACTION"],
    ["devices=17", "at most 16 devices"],
    ["devices=-1", "'-1' is no number"],
    ["fabric=maybe", "'maybe' is none of not-supported|not-permitted|supported"],
  ])("a misspelt plan (%s) stops the child", async (plan, message) => {
    const { code, stderr, stdout } = await run("cuda", "names", plan);
    expect({ code, stderr, stdout }).toEqual({ code: 64, stderr: `mx-fakes: MX_FAKES: '${plan}': ${message}\n`, stdout: "" });
  });
});

describe("the ledger", () => {
  it("says what a process that ended at once left open", async () => {
    const { code, ledger } = await run("cuda", "leaves");
    expect(code).toBe(0);
    expect(ledger.ended).toBe(false);
    const open: LedgerKind[] = ledger.open.map((thing) => thing.kind);
    expect(open).toEqual(["context", "reservation", "mapping", "handle", "stream", "pinned"]);
    expect(ledger.peak.handle).toEqual({ things: 1, bytes: 2 << 20 });
  });

  it("counts bytes by the path that they took", async () => {
    expect((await run("cufile", "reading")).ledger.amounts).toEqual({ direct: 4096, bounce: 5914 });
    expect((await run("cufile", "reading", "gds=compat")).ledger.amounts).toEqual({ compat: 10010 });
  });
});
