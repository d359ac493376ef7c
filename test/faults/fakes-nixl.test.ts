import { spawnSync } from "node:child_process";
import { basename, dirname, join } from "node:path";
import { expect, it } from "vitest";
import { fakesEnv, fakesFolder, fakesProgram, readLedger } from "../support/fakes.js";
import { temporaryFolder } from "../support/folders.js";
import { describeNixl } from "../support/nixl.js";
import { runProgram } from "../support/run-node.js";

/** Dynamic symbols of a library, sorted; with their version, where they have one. */
function symbols(file: string, which: string): string[] {
  const { stdout, status, stderr } = spawnSync("nm", ["--dynamic", "--format=posix", which, file], { encoding: "utf8" });
  if (status !== 0) throw new Error(`nm ${file}: ${stderr}`);
  const names = stdout.split("\n").map((line) => line.split(" ")[0] ?? "");
  return names.map((name) => name.replace("@@", "@")).filter((name) => name !== "" && name !== "libcudart.so.12@libcudart.so.12");
}

describeNixl("the real NIXL over the stand-ins", (nixl) => {
  async function run(scenario: string, plan = "") {
    const ledger = join(temporaryFolder(), "ledger");
    const finished = await runProgram(fakesProgram("nixl"), [scenario], { env: fakesEnv({ plan, ledger, nixl }) });
    return { ...finished, ledger: readLedger(ledger) };
  }

  it("the forwarding library has the functions of the real one, no more and no fewer", () => {
    const real = symbols(nixl, "--defined-only").filter((name) => name.startsWith("nixl_capi_"));
    expect(real.length).toBeGreaterThan(100);
    expect(symbols(join(fakesFolder(), "nixl/libnixl_capi.so"), "--defined-only")).toEqual(real);
  });

  it("the stand-ins have all that the real plugins and UCX's CUDA modules link to", () => {
    const offered = ["libcuda.so.1", "libcudart.so.12", "libcufile.so.0", "libnvidia-ml.so.1"].flatMap((file) =>
      symbols(join(fakesFolder(), file), "--defined-only"),
    );
    const ucx = join(dirname(nixl), "../nixl_cu12.libs/ucx");
    const users = [
      join(dirname(nixl), "plugins/libplugin_GDS_MT.so"),
      join(ucx, "libuct_cuda.so.0.0.0"),
      join(ucx, "libucm_cuda.so.0.0.0"),
    ];
    const wanted = users.flatMap((file) => symbols(file, "--undefined-only")).filter((name) => /^(cu[A-Z]|cuda[A-Z]|nvml)/.test(name));
    expect(wanted).toContain("cudaSetDevice@libcudart.so.12");
    expect(wanted.filter((name) => !offered.includes(name))).toEqual([]);
  });

  it("POSIX reads a file into host memory through the forwarding library", async () => {
    const { code, stderr, ledger } = await run("posix");
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(ledger.open).toEqual([]);
    expect(ledger.peak["nixl-registration"]).toEqual({ things: 17, bytes: 16 << 20 });
    expect(ledger.peak["nixl-transfer"]?.things).toBe(1);
    expect(ledger.counts.cuInit).toBeUndefined();
  });

  it("GDS_MT reads a file into device memory, directly, and leaves nothing open", async () => {
    const { code, stderr, ledger } = await run("gds_mt");
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(ledger.open).toEqual([]);
    expect(ledger.counts.cuFileRead).toBe(16);
    expect(ledger.amounts).toEqual({ direct: 8 << 20 });
    expect(ledger.peak["cufile-buffer"]).toEqual({ things: 16, bytes: 8 << 20 });
    expect(ledger.loaded.map((file) => basename(file)).sort()).toEqual([
      "libcuda.so.1",
      "libcudart.so.12",
      "libcufile.so.0",
      "libnixl_capi.so",
    ]);
    const closed = ledger.events.filter((event) => event.what === "closed").map((event) => event.kind);
    const order = [
      "nixl-transfer",
      "nixl-request",
      "cufile-buffer",
      "cufile-file",
      "nixl-agent",
      "mapping",
      "reservation",
      "context",
    ] as const;
    expect([...order].sort((a, b) => closed.lastIndexOf(a) - closed.lastIndexOf(b))).toEqual([...order]);
  });

  it("UCX, with its own CUDA modules, registers one region of device memory over one handle", async () => {
    const { code, stderr, ledger } = await run("ucx");
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(ledger.open).toEqual([]);
    expect(ledger.peak["nixl-registration"]).toEqual({ things: 1, bytes: 8 << 20 });
    expect(ledger.counts.cuMemGetHandleForAddressRange).toBeGreaterThan(0);
  });

  it("what cannot be registered goes through cuFile's own buffers, and counts so", async () => {
    const { code, ledger } = await run("gds_mt", "registered-bytes=4194304");
    expect(code).toBe(0);
    expect(ledger.calls.filter((call) => call.name === "cuFileBufRegister").map((call) => call.status)).toEqual([
      ...Array(8).fill(0),
      ...Array(8).fill(5016),
    ]);
    expect(ledger.amounts).toEqual({ direct: 4 << 20, bounce: 4 << 20 });
    expect((await run("gds_mt", "gds=compat")).ledger.amounts).toEqual({ compat: 8 << 20 });
  });

  it.each([["cuFileRead#5=CU_FILE_INTERNAL_ERROR"], ["cuFileRead#5=short:4096"]])(
    "a read that goes wrong (%s) fails the transfer",
    async (plan) => {
      const { code, ledger } = await run("gds_mt_fails", plan);
      expect(code).toBe(0);
      expect(ledger.faults).toHaveLength(1);
      expect(ledger.counts.cuFileRead).toBe(16);
      expect(ledger.open).toEqual([]);
    },
  );

  it("a transfer that never ends for its caller ends by its release", async () => {
    const { code, ledger } = await run("gds_mt_never_ends", "nixl_capi_get_xfer_status#1+=NIXL_CAPI_IN_PROG");
    expect(code).toBe(0);
    expect(ledger.open).toEqual([]);
  });

  it("a read that hangs stays in flight", async () => {
    const { code, ledger } = await run("gds_mt_hangs", "cuFileRead#3=hang");
    expect(code).toBe(0);
    expect(ledger.faults).toEqual([{ name: "cuFileRead", n: 3, action: "hang" }]);
    expect(ledger.open.filter((thing) => thing.kind === "cufile-io")).toHaveLength(1);
    expect(ledger.open.filter((thing) => thing.kind === "nixl-transfer")).toHaveLength(1);
  });

  it("calls fail as planned, both those the ledger follows and those forwarded unseen", async () => {
    const { code, stderr, ledger } = await run(
      "planned",
      "nixl_capi_create_agent#1=NIXL_CAPI_ERROR_EXCEPTION;nixl_capi_xfer_dlist_add_desc#1=-1",
    );
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(ledger.faults).toHaveLength(2);
    expect(ledger.open).toEqual([]);
  });

  it.each([
    ["unmap_in_flight", "cuFileRead#*=hang", /unmaps 0x\w+ .* is read into by cuFile/],
    ["unmap_registered", "", /unmaps 0x\w+ .* is registered with (NIXL|cuFile)/],
    ["agent_with_registrations", "", /destroys a NIXL agent that still has 17 registered descriptors/],
    ["destroy_in_flight", "cuFileRead#*=hang", /destroys a NIXL request in flight before it was released/],
  ])("%s kills the process", async (scenario, plan, message) => {
    const { code, stderr } = await run(scenario, plan);
    expect(stderr).toMatch(message);
    expect(code).toBe(66);
  });

  it("without the real library it says so", async () => {
    const { code, stderr } = await runProgram(fakesProgram("nixl"), ["planned"], { env: fakesEnv({ nixl: "libnixl_capi.so" }) });
    expect({ code, stderr }).toEqual({
      code: 64,
      stderr: "mx-fakes: MX_FAKES_NIXL_LIBRARY: must be the absolute path of the real libnixl_capi.so\n",
    });
  });
});
