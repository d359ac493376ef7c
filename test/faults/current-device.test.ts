import { join } from "node:path";
import { expect, it } from "vitest";
import { compile } from "../support/compile.js";
import { fakesEnv, readLedger } from "../support/fakes.js";
import { root, temporaryFolder } from "../support/folders.js";
import { runNode } from "../support/run-node.js";

/**
 * The device of managers made before and after a library loaded into Node made another device's
 * context current; argv: the library, or none.
 */
const script = `
import { GdsTransferManager } from ${JSON.stringify(`${root}dist/index.js`)};
const [library] = process.argv.slice(2);
const deviceOf = (options) => new GdsTransferManager({ agentName: "current", ...options }).device;
const told = [deviceOf()];
if (library !== undefined) {
  try { process.dlopen({ exports: {} }, library); } catch { /* It is no addon; its constructor has run. */ }
  told.push(deviceOf(), deviceOf({ device: "cuda:1" }));
}
console.log(JSON.stringify(told));
`;

async function devices(library: string | undefined, env: Readonly<Record<string, string>>) {
  const ledger = join(temporaryFolder(), "ledger");
  const options = { env: { ...fakesEnv({ plan: "devices=3", ledger }), ...env }, args: library === undefined ? [] : [library] };
  const { code, stdout, stderr } = await runNode(script, options);
  expect(code, stderr).toBe(0);
  return { told: JSON.parse(stdout), counts: readLedger(ledger).counts, loaded: readLedger(ledger).loaded };
}

it("a manager's default device is cuda:0, and asking for it loads no driver", async () => {
  const { told, loaded } = await devices(undefined, {});
  expect([told, loaded]).toEqual([["cuda:0"], []]);
});

it("a manager's default device is the one whose context is current on its thread", async () => {
  const library = compile("current-device.c", ["-shared", "-fPIC", "-ldl"]);
  const { told, counts } = await devices(library, { MX_TEST_DEVICE: "2" });
  expect(told).toEqual(["cuda:0", "cuda:2", "cuda:1"]);
  expect(counts).toMatchObject({ cuCtxGetCurrent: 1, cuCtxGetDevice: 1 });
});

it("a driver that fails to tell the current device leaves the default", async () => {
  const library = compile("current-device.c", ["-shared", "-fPIC", "-ldl"]);
  for (const name of ["cuCtxGetCurrent", "cuCtxGetDevice", "cuDeviceGetCount", "cuDeviceGet"]) {
    const plan = `devices=3;${name}#*=CUDA_ERROR_NOT_INITIALIZED`;
    const { told } = await devices(library, { MX_TEST_DEVICE: "2", MX_FAKES: plan });
    expect([name, told]).toEqual([name, ["cuda:0", "cuda:0", "cuda:1"]]);
  }
});
