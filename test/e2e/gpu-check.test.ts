import { join } from "node:path";
import { expect, it } from "vitest";
import { fakesEnv } from "../support/fakes.js";
import { root, temporaryFolder } from "../support/folders.js";
import { describeNixl } from "../support/nixl.js";
import { runProgram } from "../support/run-node.js";

const script = join(root, "scripts/gpu-check.mjs");
const check = (env: Readonly<Record<string, string>>, ...args: string[]) =>
  runProgram(process.execPath, [script, "--no-build", "--folder", temporaryFolder(), "--bytes", "33554432", ...args], {
    env: { NIXL_LOG_LEVEL: "FATAL", UCX_LOG_LEVEL: "error", ...env },
    timeoutMs: 60_000,
  });

it("the GPU check says in a line that there is no device, or that it would check a stand-in", async () => {
  const nowhere = await check({ MX_CUDA_LIBRARY: "/nowhere/libcuda.so.1" });
  expect([nowhere.code, nowhere.stdout]).toEqual([69, ""]);
  expect(nowhere.stderr).toMatch(/^There is no CUDA device here: .*\/nowhere\/libcuda\.so\.1/);
  const standIn = await check(fakesEnv());
  expect([standIn.code, standIn.stdout]).toEqual([69, ""]);
  expect(standIn.stderr).toMatch(/is the stand-in of the tests/);
});

describeNixl("the GPU check", (nixl) => {
  it("goes through all its steps over the stand-ins", { timeout: 80_000 }, async () => {
    const { code, stdout, stderr } = await check(fakesEnv({ nixl }), "--over-stand-ins", "--json");
    // UCX writes its warnings to stdout.
    const told = JSON.parse(stdout.slice(stdout.indexOf("{\n")));
    expect(told.steps.map(({ name, outcome }: { name: string; outcome: string }) => [name, outcome])).toEqual(
      [
        "CUDA",
        "probe",
        "checkpoint into host memory",
        "load to cuda:0 by nixl, bytes compared",
        "load to cuda:0 by staged, bytes compared",
        "load to cuda:0 by auto, bytes compared",
        "the bus: pinned memory to device, and back",
        "GdsTransferManager",
        "arena on the device",
        "mx_malloc and mx_free from threads of C",
        "registered once, read by another agent over UCX",
        "libraries",
      ].map((name) => [name, "ok"]),
    );
    expect([code, told.standIns, told.failed], stderr).toEqual([0, true, 0]);
  });

  it("fails where a byte is wrong or a call fails", { timeout: 80_000 }, async () => {
    const plan = "cuMemcpyHtoDAsync_v2#1=CUDA_ERROR_UNKNOWN";
    const { code, stdout } = await check(fakesEnv({ nixl, plan }), "--over-stand-ins", "--json");
    const told = JSON.parse(stdout.slice(stdout.indexOf("{\n")));
    expect([code, told.failed]).toEqual([1, 1]);
    expect(told.steps.find(({ outcome }: { outcome: string }) => outcome === "failed")).toMatchObject({
      name: "load to cuda:0 by staged, bytes compared",
      found: expect.stringContaining("ERR_CUDA_COPY"),
    });
  });
});
