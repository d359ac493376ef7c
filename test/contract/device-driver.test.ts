import { createHash } from "node:crypto";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import type { LoadReport } from "../../src/loader/report.js";
import { driverOf, driversFilling } from "../../src/transfer/drivers.js";
import { fakesEnv, type Ledger, readLedger } from "../support/fakes.js";
import { makeFolder, temporaryFolder } from "../support/folders.js";
import { inputs, type Written, writeInput } from "../support/inputs.js";
import { describeNixl } from "../support/nixl.js";
import { runNode } from "../support/run-node.js";

/**
 * Loads checkpoints one after the other into memory of cuda:0, twice each: whole, and where all of
 * it is selected as a stream of windows. What tensors hold is hashed here from copies, and by
 * `digest()`.
 */
const script = `
import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { createHash } from "node:crypto";
const { jobs, kernelFiles } = JSON.parse(fs.readFileSync(process.argv[2], "utf8"));
const readFileSync = fs.readFileSync;
fs.readFileSync = (file, ...rest) => kernelFiles[file] ?? readFileSync(file, ...rest);
syncBuiltinESMExports();
const { loadCheckpoint, streamCheckpoint } = await import("modelexpress-client");
const hex = (bytes) => createHash("sha256").update(bytes).digest("hex");
const told = [];
for (const { path, options, streamed } of jobs) {
  const model = await loadCheckpoint(path, options);
  const copied = {};
  const addresses = [];
  for (const [name, tensor] of model.tensors) {
    const middle = Math.floor(tensor.byteLength / 2);
    copied[name] = hex(Buffer.concat([await tensor.copyToHost(0, middle), await tensor.copyToHost(middle)]));
    addresses.push(Number(tensor.address % 4096n));
  }
  const digests = Object.fromEntries(await model.digest());
  const aligned = model.plan.shards.every((shard) => shard.aligned);
  await model.close();
  const stream = {};
  if (streamed) for await (const tensor of streamCheckpoint(path, { ...options, maxBytes: 8 * 2 ** 20 })) stream[tensor.name] = hex(await tensor.copyToHost());
  told.push({ report: model.report, copied, digests, stream, aligned, addresses });
}
console.log(JSON.stringify(told));`;

interface Told {
  readonly report: LoadReport;
  readonly copied: Readonly<Record<string, string>>;
  readonly digests: Readonly<Record<string, string>>;
  readonly stream: Readonly<Record<string, string>>;
  readonly aligned: boolean;
  /** Modulo 4096. */
  readonly addresses: readonly number[];
}

/** A driver, and on what machine. */
const cases: readonly (readonly [title: string, driver: string, gds: boolean, used: string])[] = [
  ["nixl by GDS_MT", "nixl", false, "nixl"],
  ["staged", "staged", false, "staged"],
  ["auto without GPUDirect Storage", "auto", false, "staged"],
  ["auto with GPUDirect Storage", "auto", true, "nixl"],
];

describeNixl("loads into device memory", (nixl) => {
  const folder = makeFolder();
  const written = new Map<string, Written>();
  beforeAll(() => {
    for (const title of Object.keys(inputs)) written.set(title, writeInput(folder, title));
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  async function run(driver: string, gds: boolean): Promise<{ told: Told[]; ledger: Ledger }> {
    const ledger = join(temporaryFolder(), "ledger");
    const jobs = [...written].map(([title, { path, expected }]) => {
      // A function cannot be sent: the names that it picks can.
      const { include, ...options } = inputs[title]?.options ?? {};
      const picked = include === undefined ? {} : { include: typeof include === "function" ? [...expected.keys()] : include };
      return { path, options: { ...options, ...picked, device: "cuda:0", driver, threads: 2 }, streamed: expected.size < 100 };
    });
    const file = join(temporaryFolder(), "jobs.json");
    writeFileSync(file, JSON.stringify({ jobs, kernelFiles: gds ? { "/proc/modules": "nvidia_fs 262144 0 - Live 0x0\n" } : {} }));
    const env = { ...fakesEnv({ ledger, nixl }), NIXL_LOG_LEVEL: "FATAL" };
    const { code, signal, stdout, stderr } = await runNode(script, { env, args: [file], timeoutMs: 60_000 });
    expect([code, signal], stderr).toEqual([0, null]);
    return { told: JSON.parse(stdout), ledger: readLedger(ledger) };
  }

  it.each(cases)("by %s are the very bytes of the files", { timeout: 90_000 }, async (_, driver, gds, used) => {
    const { told, ledger } = await run(driver, gds);
    for (const [at, [title, { expected }]] of [...written].entries()) {
      const { report, copied, digests, stream, aligned, addresses } = told[at] as Told;
      const hashes = Object.fromEntries([...expected].map(([name, bytes]) => [name, createHash("sha256").update(bytes).digest("hex")]));
      expect([title, copied]).toEqual([title, hashes]);
      expect([title, digests]).toEqual([title, hashes]);
      if (expected.size < 100) expect([title, stream]).toEqual([title, hashes]);
      const bytes = [...expected.values()].reduce((sum, content) => sum + content.length, 0);
      expect([title, report.device, report.bytes, report.tensors]).toEqual([title, "cuda:0", bytes, expected.size]);
      expect([title, report.driver]).toEqual([title, { asked: driver, used: bytes === 0 ? [] : [used] }]);
      expect([title, report.nixl?.plugin]).toEqual([title, used === "nixl" && bytes > 0 ? "GDS_MT" : undefined]);
      const { placement, alignmentBytes = 256 } = inputs[title]?.options ?? {};
      if (placement !== "packed")
        expect([title, aligned, addresses.filter((address) => address % alignmentBytes !== 0)]).toEqual([title, true, []]);
    }
    expect([ledger.open, ledger.killed, ledger.ended]).toEqual([[], undefined, true]);
  });

  it("are made by the drivers whose flags say so", () => {
    expect(driversFilling("device")).toEqual(["auto", "nixl", "staged"]);
    expect(driverOf("auto", "device")).toMatchObject({
      name: "auto",
      capabilities: { memory: ["device"], copies: true, registrable: true },
    });
    expect(driverOf("staged").capabilities).toEqual({ memory: ["device"], copies: true, registrable: true });
  });
});
