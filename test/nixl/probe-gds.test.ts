import { expect, it } from "vitest";
import { gdsFindings } from "../../src/probe/gds.js";
import { collectEvents } from "../support/events.js";
import { fakesEnv } from "../support/fakes.js";
import { root } from "../support/folders.js";
import { describeNixl } from "../support/nixl.js";
import { runNode } from "../support/run-node.js";

it("says of each part that is missing why, and what to do", async () => {
  const events = collectEvents();
  const findings = await gdsFindings({ library: "/nowhere/libnixl_capi.so" }, () => undefined, {});
  expect(findings.map(({ name, found }) => [name, found])).toEqual([
    ["nixl", false],
    ["cuda", false],
    ["nvidia_fs", null],
    ["cufile", false],
    ["cufile-configuration", null],
  ]);
  for (const { found, why, remedy } of findings) {
    expect(why).not.toBe("");
    if (found === false) expect(remedy).not.toBeNull();
  }
  expect(events.filter(({ event }) => event === "probe.reason").map(({ name }) => name)).toEqual(["nixl", "cuda", "cufile"]);
});

it("reads modules and cuFile's configuration", async () => {
  const texts = new Map([
    ["/proc/modules", "nvidia 1 2\nnvidia_fs 3 4\n"],
    ["/etc/cufile.json", '{ "properties": { "allow_compat_mode": true, "max_device_pinned_mem_size_kb": 1024 } }'],
  ]);
  const findings = await gdsFindings({ library: "/nowhere/libnixl_capi.so" }, (path) => texts.get(path), {});
  const of = (name: string) => findings.find((finding) => finding.name === name);
  expect(of("nvidia_fs")?.found).toBe(true);
  expect(of("cufile-configuration")?.facts).toEqual({ path: "/etc/cufile.json", limitBytes: 2 ** 20, compatibilityMode: true });
});

describeNixl("with everything there", (nixl) => {
  it("finds NIXL with its plugins, the driver and its devices, and cuFile", async () => {
    const script = `import { probeGds } from ${JSON.stringify(`${root}dist/index.js`)}; console.log(JSON.stringify(await probeGds()));`;
    const { stdout } = await runNode(script, { env: { ...fakesEnv(), MX_NIXL_LIBRARY: nixl } });
    const findings = JSON.parse(stdout) as { name: string; found: boolean; facts: Record<string, unknown> }[];
    const of = (name: string) => findings.find((finding) => finding.name === name);
    expect(of("nixl")).toMatchObject({ found: true, facts: { path: nixl, version: "1.5.1", plugins: expect.stringContaining("GDS_MT") } });
    expect(of("cuda")).toMatchObject({ found: true, facts: { devices: 1 } });
    expect(of("cufile")).toMatchObject({ found: true });
  });
});
