import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { compile } from "../support/compile.js";
import { fakesEnv } from "../support/fakes.js";
import { root, temporaryFolder } from "../support/folders.js";
import { describeNixl } from "../support/nixl.js";
import { runProgram } from "../support/run-node.js";

const script = join(root, "scripts/gpu-check.mjs");
const all = [
  "device",
  "machine",
  "memory",
  "host",
  "cufile",
  "bus",
  "probe",
  "load-staged",
  "load-nixl",
  "load-auto",
  "copy-back",
  "ranges",
  "arena",
  "c-callers",
  "remote-read",
];

interface Line {
  readonly step?: string;
  readonly what?: string;
  readonly outcome?: string;
  readonly why?: string;
  readonly lost?: readonly string[];
  readonly [fact: string]: unknown;
}

async function check(env: Readonly<Record<string, string>>, ...args: string[]) {
  const folder = temporaryFolder();
  const words = [script, "--no-build", "--folder", folder, "--bytes", "33554432", "--json", ...args];
  const options = { env: { NIXL_LOG_LEVEL: "FATAL", UCX_LOG_LEVEL: "error", ...env }, timeoutMs: 100_000 };
  const { code, stdout, stderr } = await runProgram(process.execPath, words, options);
  const report = join(folder, "report.jsonl");
  const text = existsSync(report) ? readFileSync(report, "utf8") : "";
  const lines = text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as Line);
  const outcomes = Object.fromEntries(lines.filter(({ outcome }) => outcome !== undefined).map(({ step, outcome }) => [step, outcome]));
  return { code, stdout, stderr, text, lines, outcomes };
}

describe("the GPU check", () => {
  it("says in a line that there is no device, or that it would check a stand-in", async () => {
    const nowhere = await check({ MX_CUDA_LIBRARY: "/nowhere/libcuda.so.1" });
    expect(nowhere.code).toBe(69);
    expect(nowhere.stderr).toMatch(/^There is no CUDA device here: .*\/nowhere\/libcuda\.so\.1/);
    const standIn = await check(fakesEnv());
    expect(standIn.code).toBe(69);
    expect(standIn.stderr).toMatch(/is the stand-in of the tests/);
  });

  it.each([
    [["--only", "nothing"], /--only names nothing: the steps are device, machine/],
    [["--env", "bus"], /--env is bus: write STEP:NAME=VALUE/],
    [["--limit", "nothing:3"], /--limit is nothing:3: write STEP:SECONDS/],
    [["--device", "gpu0"], /--device is gpu0: name a device such as cuda:0/],
    [["--nonsense"], /nonsense/],
  ])("refuses the arguments %j, and says what to write", async (args, message) => {
    const { code, stderr, text } = await check({}, ...args);
    expect(stderr).toMatch(message);
    expect([code, text]).toEqual([64, ""]);
  });

  it("loses a step that hangs or crashes, and that step alone", async () => {
    const crash = compile("crash.c", ["-shared", "-fPIC"]);
    const { code, lines, outcomes } = await check(
      fakesEnv(),
      "--over-stand-ins",
      "--only",
      "machine,memory,bus,probe,arena",
      "--env",
      "memory:MX_FAKES=cuMemAddressReserve#1=hang",
      "--limit",
      "memory:2",
      "--env",
      `bus:LD_PRELOAD=${crash}`,
      "--env",
      "arena:MX_FAKES=cuMemCreate#1=CUDA_ERROR_UNKNOWN",
    );
    expect(outcomes).toEqual({ device: "ok", machine: "ok", memory: "hung", bus: "crashed", probe: "ok", arena: "failed" });
    // What it had answered before it hung is there.
    expect(lines.some(({ step, what }) => step === "memory" && what === "handle")).toBe(true);
    expect(lines.find(({ step, outcome }) => step === "bus" && outcome !== undefined)).toMatchObject({ signal: "SIGSEGV" });
    expect(lines.find(({ step, outcome }) => step === "arena" && outcome !== undefined)?.why).toContain("ERR_CUDA");
    expect([code, lines.at(-1)?.lost]).toEqual([1, ["memory", "bus", "arena"]]);
  });
});

describeNixl("the GPU check", (nixl) => {
  it("goes through all its steps over the stand-ins", { timeout: 110_000 }, async () => {
    const { code, lines, outcomes, stderr, stdout, text } = await check(fakesEnv({ nixl }), "--over-stand-ins");
    expect(outcomes, stderr).toEqual(Object.fromEntries(all.map((name) => [name, "ok"])));
    expect([code, stdout]).toEqual([0, text]);
    const of = (name: string, question: string) => lines.filter(({ step, what }) => step === name && what === question);
    expect(of("memory", "dmaBuf").map(({ handles, status }) => [handles, status])).toEqual([
      [1, "ok"],
      [1, "ok"],
      [2, "CUDA_ERROR_INVALID_VALUE"],
      [2, "CUDA_ERROR_INVALID_VALUE"],
    ]);
    expect(of("cufile", "read").map(({ same }) => same)).toEqual(Array.from({ length: 64 }, () => 1));
    expect(of("remote-read", "read").map(({ into }) => into)).toEqual(["device", "host"]);
  });

  it("fails where a byte is wrong or a call fails", { timeout: 60_000 }, async () => {
    const plan = "load-staged:MX_FAKES=cuMemcpyHtoDAsync_v2#1=CUDA_ERROR_UNKNOWN";
    const { code, outcomes, lines } = await check(fakesEnv({ nixl }), "--over-stand-ins", "--only", "load-staged", "--env", plan);
    expect([code, outcomes]).toEqual([1, { device: "ok", host: "ok", "load-staged": "failed" }]);
    expect(lines.find(({ outcome }) => outcome === "failed")?.why).toContain("ERR_CUDA_COPY");
  });
});
