import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, expect, it, vi } from "vitest";
import { type GdsMachine, gdsFindings, probeGds } from "../../src/probe/gds.js";
import { findingsOf } from "../../src/probe/gds-process.js";
import { gpuReads } from "../../src/probe/gpu-reads.js";
import { compile } from "../support/compile.js";
import { collectEvents } from "../support/events.js";
import { fakesEnv } from "../support/fakes.js";
import { root, temporaryFolder } from "../support/folders.js";
import { describeNixl } from "../support/nixl.js";
import { runMx, runNode } from "../support/run-node.js";

const names = ["nixl", "cuda", "nvidia_fs", "p2pdma", "cufile", "cufile-configuration"];
const nowhere = { library: "/nowhere/libnixl_capi.so" };

interface Sources {
  readonly texts?: Readonly<Record<string, string>>;
  readonly folders?: Readonly<Record<string, readonly string[]>>;
  readonly config?: string;
}

function machine({ texts = {}, folders = {}, config }: Sources): GdsMachine {
  return { read: (path) => texts[path], list: (folder) => folders[folder], kernelConfig: () => Promise.resolve(config), environment: {} };
}

async function findingOf(name: string, sources: Sources) {
  return (await gdsFindings(nowhere, machine(sources))).find((finding) => finding.name === name);
}

afterEach(() => vi.unstubAllEnvs());

it("says of each part that is missing why, and what to do", async () => {
  const events = collectEvents();
  const findings = await probeGds(nowhere);
  expect(findings.map(({ name }) => name)).toEqual(names);
  for (const { found, why, remedy } of findings) {
    expect(why).not.toBe("");
    if (found === false) expect(remedy).not.toBeNull();
  }
  const missing = findings.filter(({ found }) => found === false).map(({ name }) => name);
  expect(missing).toEqual(expect.arrayContaining(["nixl"]));
  expect(events.filter(({ event }) => event === "probe.reason").map(({ name }) => name)).toEqual(missing);
});

it("names a library of NIXL's that is refused with the loader's reason, and a place where none is once", async () => {
  const library = join(temporaryFolder(), "libnixl_capi.so");
  writeFileSync(library, "no library");
  const refused = (await gdsFindings({ library }, machine({})))[0];
  expect(refused).toMatchObject({ found: false, why: expect.stringMatching(/libnixl_capi\.so.*(too short|invalid ELF header)/) });
  expect((await gdsFindings(nowhere, machine({})))[0]?.why).toBe(
    "/nowhere/libnixl_capi.so (the option library): cannot open shared object file: No such file or directory",
  );
});

it("reads modules and cuFile's configuration", async () => {
  const configuration = '{ "properties": { "allow_compat_mode": true, "use_pci_p2pdma": true, "max_device_pinned_mem_size_kb": 1024 } }';
  const texts = { "/proc/modules": "nvidia 1 2\nnvidia_fs 3 4\n", "/etc/cufile.json": configuration };
  expect(await findingOf("nvidia_fs", { texts })).toMatchObject({ found: true, why: "the kernel module is loaded" });
  expect(await findingOf("cufile-configuration", { texts })).toMatchObject({
    why: "/etc/cufile.json: at most 1 MiB registered, compatibility mode allowed, PCI P2PDMA allowed",
    facts: { path: "/etc/cufile.json", limitBytes: 2 ** 20, compatibilityMode: true, p2pDma: true },
  });
  const version = { texts: { "/proc/driver/nvidia-fs/version": "version: 2.25.7\n" } };
  expect(await findingOf("nvidia_fs", version)).toMatchObject({ found: true, why: "the kernel module is loaded, version 2.25.7" });
  expect(await findingOf("nvidia_fs", { texts: { "/proc/modules": "nvidia 1 2\n" } })).toMatchObject({ found: false });
  expect(await findingOf("nvidia_fs", {})).toMatchObject({ found: null, why: "/proc/modules cannot be read" });
});

const pci = "/sys/bus/pci/devices";
const gpu = { [`${pci}/0000:01:00.0/vendor`]: "0x10de\n", [`${pci}/0000:02:00.0/vendor`]: "0x144d\n" };
const devices = { [pci]: ["0000:01:00.0", "0000:02:00.0"] };
const config = "CONFIG_PCI_P2PDMA=y\n";
const offered = { ...gpu, [`${pci}/0000:01:00.0/p2pmem/size`]: "85899345920\n" };

it.each<[what: string, sources: Sources, found: boolean | null, why: RegExp, remedy: RegExp | null]>([
  ["offered", { texts: offered, folders: devices, config }, true, /^memory is offered by 0000:01:00.0 \(80 GiB\)$/, null],
  [
    "offered, but multipath",
    { texts: { ...offered, "/sys/module/nvme_core/parameters/multipath": "Y\n" }, folders: devices, config },
    false,
    /NVMe multipath is on/,
    /multipath=N/,
  ],
  [
    "not offered",
    { texts: gpu, folders: devices, config },
    false,
    /^none of 1 NVIDIA device\(s\) offers .*p2pmem\)$/,
    /RMForceStaticBar1=1/,
  ],
  ["not offered, kernel unknown", { texts: gpu, folders: devices }, false, /CONFIG_PCI_P2PDMA cannot be told/, /RMForceStaticBar1=1/],
  [
    "not offered with static BAR1",
    { texts: { ...gpu, "/proc/driver/nvidia/params": 'RegistryDwords: "RMForceStaticBar1=1;"\n' }, folders: devices, config },
    false,
    /none of 1/,
    /asked for already/,
  ],
  ["kernel without", { texts: gpu, folders: devices, config: "# CONFIG_PCI_P2PDMA is not set\n" }, false, /built without/, /6\.2/],
  ["no device", { texts: gpu, folders: { [pci]: ["0000:02:00.0"] }, config }, false, /no NVIDIA device/, /GPU/],
  ["no bus", { config }, null, /cannot be read/, /container/],
])("tells P2PDMA: %s", async (_, sources, found, why, remedy) => {
  const finding = await findingOf("p2pdma", sources);
  expect(finding?.found).toBe(found);
  expect(finding?.why).toMatch(why);
  if (remedy === null) expect(finding?.remedy).toBeNull();
  else expect(finding?.remedy).toMatch(remedy);
});

it("says what a load to a GPU comes to", () => {
  const have = (...there: string[]) => names.map((name) => ({ name, found: there.includes(name), why: "", remedy: null, facts: {} }));
  expect(gpuReads(have())).toBe("none: there is no CUDA device");
  expect(gpuReads(have("cuda", "nvidia_fs"))).toBe("through pinned buffers of the host, for lack of nixl, cufile");
  expect(gpuReads(have("cuda", "nvidia_fs", "cufile", "nixl"))).toBe("straight from storage, by NIXL's plugin GDS_MT");
});

it.each<[what: string, program: string, why: string]>([
  ["crashes", 'process.kill(process.pid, "SIGSEGV")', "the process that looked at it was ended by SIGSEGV"],
  ["hangs", "for (;;)", "the process that looked at it gave no answer within 3000 ms"],
  ["exits", "process.exit(3)", "the process that looked at it ended with code 3"],
])("goes on after a library that %s", async (_, then, why) => {
  const program = join(temporaryFolder(), "looks.mjs");
  // A program whose second look is the end of it.
  writeFileSync(
    program,
    `for (let at = Number(process.argv[2]); at < ${names.length}; at++) {
      await new Promise((resolve) => process.send({ looking: "" }, resolve));
      if (at === 1) ${then};
      const finding = { name: ${JSON.stringify(names)}[at], found: true, why: "there", remedy: null, facts: {} };
      await new Promise((resolve) => process.send({ finding }, resolve));
    }`,
  );
  const findings = await findingsOf(program, {}, 3000);
  expect(findings.map(({ name, found }) => [name, found])).toEqual(names.map((name) => [name, name === "cuda" ? null : true]));
  expect(findings[1]?.why).toBe(why);
});

it("is not taken down by odd libraries: a NIXL that aborts when it is loaded, a CUDA driver without functions", async () => {
  const env = {
    MX_NIXL_LIBRARY: compile("odd-library.c", ["-shared", "-fPIC", "-DABORTS"]),
    MX_CUDA_LIBRARY: compile("odd-library.c", ["-shared", "-fPIC"]),
  };
  const { code, stdout, stderr } = await runMx(["probe", "--json"], { env });
  expect([code, stderr]).toEqual([0, ""]);
  const { findings } = JSON.parse(stdout) as { findings: { name: string; found: boolean | null; why: string }[] };
  const gpu = findings.slice(-names.length);
  expect(gpu.map(({ name }) => name)).toEqual(names);
  expect(gpu[0]).toMatchObject({ found: null, why: "the process that looked at it was ended by SIGABRT" });
  expect(gpu[1]).toMatchObject({ found: false, why: expect.stringMatching(/lacks cuInit/) });
});

describeNixl("with everything there", (nixl) => {
  it("finds NIXL with its plugins, the driver and its devices, and cuFile", async () => {
    const script = `import { probeGds } from ${JSON.stringify(`${root}dist/index.js`)}; console.log(JSON.stringify(await probeGds()));`;
    const { stdout } = await runNode(script, { env: { ...fakesEnv(), MX_NIXL_LIBRARY: nixl } });
    const findings = JSON.parse(stdout) as { name: string; found: boolean; facts: Record<string, unknown> }[];
    const of = (name: string) => findings.find((finding) => finding.name === name);
    expect(of("nixl")).toMatchObject({ found: true, facts: { path: nixl, version: "1.5.1", plugins: expect.stringContaining("GDS_MT") } });
    expect(of("cuda")).toMatchObject({ found: true, facts: { devices: 1 } });
    expect(of("cufile")).toMatchObject({
      found: true,
      facts: { library: "libcufile.so.0", path: expect.stringContaining("libcufile.so.0") },
    });
  });

  it("shows it all in the default table, and as JSON with nothing else on stdout or stderr", async () => {
    const env = { ...fakesEnv(), MX_NIXL_LIBRARY: nixl };
    const { code, stdout, stderr } = await runMx(["probe", "--json"], { env });
    expect([code, stderr]).toEqual([0, ""]);
    const { findings, defaults } = JSON.parse(stdout) as { findings: { name: string; found: boolean }[]; defaults: { gpuReads: string } };
    for (const name of ["nixl", "cuda", "cufile"]) expect([name, findings.find((one) => one.name === name)?.found]).toEqual([name, true]);
    expect(defaults.gpuReads).toMatch(/GDS_MT$|for lack of nvidia_fs$/);
    const table = await runMx(["probe"], { env });
    expect(table.stdout).toMatch(/^for any load .*$/m);
    expect(table.stdout).toMatch(/^for a GPU .*\nnixl\s+yes\s+\//m);
    expect(Math.max(...table.stdout.split("\n").map((line) => line.length))).toBeLessThan(300);
  });

  it("takes a CUDA driver that does not start, such as the toolkit's stub, for none", async () => {
    const env = { ...fakesEnv({ plan: "cuInit#*=CUDA_ERROR_STUB_LIBRARY" }), MX_NIXL_LIBRARY: nixl };
    const { code, stdout } = await runMx(["probe", "--json"], { env });
    expect(code).toBe(0);
    const { findings } = JSON.parse(stdout) as { findings: { name: string; found: boolean; why: string }[] };
    expect(findings.find(({ name }) => name === "cuda")).toMatchObject({
      found: false,
      why: expect.stringContaining("cannot be initialised"),
    });
  });
});
