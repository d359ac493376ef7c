import { createHash } from "node:crypto";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { fakesEnv, readLedger } from "../support/fakes.js";
import { temporaryFolder } from "../support/folders.js";
import { type Tensors, writeShards } from "../support/loading.js";
import { describeNixl } from "../support/nixl.js";
import { runMx } from "../support/run-node.js";
import { pattern } from "../support/safetensors.js";

const tensors: Tensors = { weight: { dtype: "F32", shape: [300, 41] }, bias: { dtype: "BF16", shape: [5] } };
const bytesOf = { weight: pattern("weight", 49_200), bias: pattern("bias", 10) };
const digests = Object.fromEntries(
  Object.entries(bytesOf).map(([name, bytes]) => [name, createHash("sha256").update(bytes).digest("hex")]),
);
const shards: readonly Tensors[] = [{ weight: { dtype: "F32", shape: [300, 41] } }, { bias: { dtype: "BF16", shape: [5] } }];

/** `mx` where no driver of NVIDIA's and no NIXL can be found. */
const bare = { MX_CUDA_LIBRARY: "/nowhere/libcuda.so.1", MX_NIXL_LIBRARY: "/nowhere/libnixl_capi.so" };

async function failing(args: readonly string[], env: Record<string, string>) {
  const { code, stdout, stderr } = await runMx([...args, "--json"], { env });
  expect(stdout).toBe(stderr);
  return { code, error: JSON.parse(stderr).error };
}

describeNixl("mx load --device cuda:0", (nixl) => {
  it.each([
    ["nixl", ["--driver", "nixl"]],
    ["nixl", ["--driver", "nixl", "--plugin", "GDS_MT"]],
    ["staged", ["--driver", "staged"]],
    ["staged", []],
  ])("loads and hashes what lies on the device by %s %j", async (used, args) => {
    const ledger = join(temporaryFolder(), "ledger");
    const env = { ...fakesEnv({ ledger, nixl }), NIXL_LOG_LEVEL: "FATAL" };
    const { code, stdout, stderr } = await runMx(["load", writeShards(shards), "--device", "cuda:0", "--digest", "--json", ...args], {
      env,
    });
    expect([code, stderr]).toEqual([0, ""]);
    const loaded = JSON.parse(stdout);
    const found = loaded.tensors.map(({ name, device, sha256 }: Record<string, string>) => [name, device, sha256]);
    expect(found).toEqual(Object.keys(tensors).map((name) => [name, "cuda:0", digests[name]]));
    expect(loaded.report).toMatchObject({ device: "cuda:0", driver: { asked: args[1] ?? "auto", used: [used] } });
    // The context goes with the process.
    expect(readLedger(ledger).open.filter(({ kind }) => kind !== "context")).toEqual([]);
  });

  it("shows people the device, what NIXL did, and the path that was taken", async () => {
    const env = { ...fakesEnv({ nixl }), NIXL_LOG_LEVEL: "FATAL" };
    const { code, stdout } = await runMx(["load", writeShards(shards), "--device", "cuda:0", "--driver", "nixl"], { env });
    expect(code).toBe(0);
    expect(stdout).toMatch(/^memory .* on cuda:0$/m);
    expect(stdout).toMatch(/^NIXL {2,}GDS_MT: 2 window\(s\) in /m);
    expect(stdout).toMatch(/^ {2}registered {2}4 time\(s\), 48\.1 KiB of memory, in /m);
    expect(stdout).toMatch(/^ {2}path {2,}unknown: \/proc\/driver\/nvidia-fs\/stats cannot be read$/m);
  });
});

describe("mx load --device", () => {
  it("ends with 69 where CUDA or NIXL is not to be had", async () => {
    const path = writeShards(shards);
    const load = ["load", path, "--device", "cuda:0"];
    expect(await failing(load, bare)).toMatchObject({ code: 69, error: { code: "ERR_CUDA_LIBRARY" } });
    const withoutNixl = { ...fakesEnv(), MX_NIXL_LIBRARY: bare.MX_NIXL_LIBRARY };
    expect(await failing([...load, "--driver", "nixl"], withoutNixl)).toMatchObject({ code: 69, error: { code: "ERR_NIXL_NOT_FOUND" } });
  });

  it("ends with 64 where it is no device's name, or the driver fills none, before a file is looked at", async () => {
    const name = await failing(["load", "/nowhere", "--device", "gpu"], bare);
    expect(name).toMatchObject({ code: 64, error: { code: "ERR_OPTION_INVALID" } });
    expect(name.error.message).toBe('--device must be "host" or "cuda:N", N from 0 to 9999, got \'gpu\'');
    const driver = await failing(["load", "/nowhere", "--device", "cuda:0", "--driver", "pread"], bare);
    expect(driver).toMatchObject({ code: 64, error: { code: "ERR_OPTION_CONFLICT" } });
    expect(driver.error.message).toBe('--driver "pread" cannot load to cuda:0: use one of auto, nixl, staged');
  });

  it("ends with 75 where the driver does not answer in time", async () => {
    const env = fakesEnv({ plan: "cuInit#1=hang" });
    const begin = performance.now();
    const { code, error } = await failing(["load", writeShards(shards), "--device", "cuda:0", "--timeout", "2"], env);
    expect([code, error.code]).toEqual([75, "ERR_TRANSFER_TIMEOUT"]);
    expect(error.message).toBe("the CUDA driver did not answer for cuda:0 after 2000 ms");
    expect(performance.now() - begin).toBeLessThan(15_000);
  });

  it("names the flag of a wrong value, not the library's option", async () => {
    const { code, error } = await failing(["load", "/nowhere", "--alignment", "3"], bare);
    expect([code, error.code, error.message]).toEqual([
      64,
      "ERR_OPTION_INVALID",
      "--alignment must be a power of two up to 2097152, got 3",
    ]);
  });
});

describe("mx plan --device", () => {
  it("plans for a device that is not there", async () => {
    const path = writeShards(shards);
    const { code, stdout, stderr } = await runMx(["plan", path, "--device", "cuda:7", "--json"], { env: bare });
    expect([code, stderr]).toEqual([0, ""]);
    expect(JSON.parse(stdout)).toMatchObject({ device: "cuda:7", alignmentBytes: 256, memory: { availableBytes: null, fits: true } });
  });

  it("holds the plan against the memory of one that is", async () => {
    const env = fakesEnv({ plan: "device-bytes=16384" });
    const { code, stdout } = await runMx(["plan", writeShards(shards), "--device", "cuda:0"], { env });
    expect(code).toBe(0);
    expect(stdout).toMatch(/^device {2,}cuda:0$/m);
    expect(stdout).toMatch(/^alignment {2,}256 B$/m);
    expect(stdout).toMatch(/16 KiB available \(free memory of cuda:0\): does not fit$/m);
  });
});
