import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { errorOf } from "../../src/errors.js";
import type { IoSupport } from "../../src/native/addon.js";
import { fileSystemName } from "../../src/probe/file-systems.js";
import { type Machine, thisMachine } from "../../src/probe/machine.js";
import { probeMachine } from "../../src/probe/probe.js";

const limits = `Limit                     Soft Limit           Hard Limit           Units
Max locked memory         8388608              8388608              bytes
Max open files            128                  20000                files
Max address space         unlimited            unlimited            bytes
`;
const support: IoSupport = { ioUring: null, directIo: null, dioOffsetAlign: 512, dioMemAlign: 4 };

interface Change extends Partial<Omit<Machine, "read" | "addon">> {
  readonly files?: Readonly<Record<string, string>>;
  readonly io?: Partial<IoSupport>;
  readonly addon?: Machine["addon"];
}

function machine({ files = {}, io = {}, ...change }: Change = {}): Machine {
  const known: Readonly<Record<string, string>> = {
    "/proc/meminfo": "MemAvailable: 1048576 kB\n",
    "/proc/self/limits": limits,
    "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    ...files,
  };
  return {
    read: (path) => known[path],
    list: () => undefined,
    kernelConfig: () => Promise.resolve(undefined),
    addon: () => ({
      version: () => "0.1.0",
      pageBytes: () => 4096,
      availableParallelism: () => 2,
      ioSupport: async () => ({ ...support, ...io }),
    }),
    addonPath: () => "/package/mx.node",
    kernelRelease: () => "6.18.0",
    processors: () => 4,
    fileSystemType: async () => 0xef53,
    fileAt: async (path) => `${path}/model.safetensors`,
    environment: {},
    nodeVersion: "v20.20.2",
    ...change,
  };
}

async function finding(name: string, change?: Change) {
  return (await probeMachine("/models", machine(change))).findings.find((one) => one.name === name);
}

describe("probe", () => {
  it("finds everything on a good machine", async () => {
    const report = await probeMachine("/models", machine());
    expect(report.findings.map(({ name, found }) => [name, found])).toEqual([
      ["addon", true],
      ["node", true],
      ["kernel", true],
      ["processors", true],
      ["memory", true],
      ["memory-limit", true],
      ["huge-pages", true],
      ["io_uring", true],
      ["direct-io", true],
      ["file-system", true],
      ["address-space", true],
      ["locked-memory", true],
      ["open-files", true],
      ["environment", true],
    ]);
    expect(report.defaults).toEqual({ driver: "auto", reads: "cached parts buffered, the rest direct by io_uring", threads: 2 });
    expect(JSON.parse(JSON.stringify(report))).toEqual(report);
    expect(report.findings.find(({ name }) => name === "direct-io")).toEqual({
      name: "direct-io",
      found: true,
      why: "/models/model.safetensors can be read with O_DIRECT; offsets at multiples of 512, memory of 4",
      remedy: null,
      facts: { file: "/models/model.safetensors", errno: "", offsetAlignBytes: 512, memAlignBytes: 4 },
    });
  });

  it.each<[string, Change, RegExp, RegExp]>([
    ["io_uring", { io: { ioUring: "EPERM" } }, /fails with EPERM: most often the seccomp profile/, /profile that allows io_uring/],
    ["io_uring", { io: { ioUring: "EPERM" }, files: { "/proc/sys/kernel/io_uring_disabled": "2\n" } }, /io_uring_disabled is 2/, /sysctl/],
    ["io_uring", { io: { ioUring: "ENOSYS" } }, /not in this kernel/, /Linux 5.6/],
    ["io_uring", { io: { ioUring: "ENOMEM" } }, /locked memory/, /ulimit -l/],
    ["direct-io", { io: { directIo: "EINVAL" } }, /refuses O_DIRECT \(EINVAL\)/, /read buffered/],
    ["direct-io", { io: { directIo: "EACCES" } }, /cannot be read: EACCES/, /Check/],
    [
      "huge-pages",
      { files: { "/sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]\n" } },
      /switched off/,
      /echo madvise/,
    ],
    [
      "address-space",
      { files: { "/proc/self/limits": limits.replace("space         unlimited", "space         8589934592") } },
      /limited to 8 GiB/,
      /ulimit -v/,
    ],
    ["node", { nodeVersion: "v20.2.9" }, /v20.2.9 is older than 20.3/, /Node 20.3/],
    ["node", { nodeVersion: "v18.20.0" }, /v18.20.0 is older than 20.3/, /Node 20.3/],
    ["environment", { environment: { MX_THREADS: "many" } }, /MX_THREADS is "many"/, /MX_THREADS/],
  ])("says why there is no %s, and what to do", async (name, change, why, remedy) => {
    const one = await finding(name, change);
    expect(one?.found).toBe(false);
    expect(one?.why).toMatch(why);
    expect(one?.remedy).toMatch(remedy);
  });

  it("tells what it cannot find out from what is not there", async () => {
    const nothing = await finding("direct-io", { fileAt: async () => undefined });
    expect(nothing).toMatchObject({ found: null, why: "/models holds no file to try it on" });
    const gone = async () => {
      throw new Error("ENOENT: no such file");
    };
    const report = await probeMachine("/models", machine({ fileAt: gone, fileSystemType: gone }));
    expect(report.findings.filter(({ found }) => found === null).map(({ name }) => name)).toEqual(["direct-io", "file-system"]);
    expect(report.findings.find(({ name }) => name === "io_uring")?.found).toBe(true);
  });

  it("goes on without the addon", async () => {
    const broken = () => {
      throw errorOf("ERR_NATIVE_MISSING", "the native addon is not at /package/mx.node");
    };
    const report = await probeMachine("/models", machine({ addon: broken }));
    expect(report.findings[0]).toMatchObject({
      name: "addon",
      found: false,
      why: "the native addon is not at /package/mx.node",
      remedy: "Install the package that the message names, with optional dependencies on; in a clone run `npm run build`.",
      facts: { code: "ERR_NATIVE_MISSING" },
    });
    expect(report.findings.filter(({ found }) => found === null).map(({ name }) => name)).toEqual(["processors", "io_uring", "direct-io"]);
    expect(report.defaults.threads).toBeNull();
  });

  it.each<[Change, unknown]>([
    [
      { io: { ioUring: "EPERM" } },
      { driver: "auto", reads: "cached parts buffered, the rest direct by threads, because io_uring is refused", threads: 2 },
    ],
    [{ io: { directIo: "EINVAL" } }, { driver: "auto", reads: "buffered, because O_DIRECT is refused", threads: 2 }],
    [{ environment: { MX_DRIVER: "pread", MX_THREADS: "7" } }, { driver: "pread", reads: "buffered", threads: 7 }],
    [{ environment: { MX_DRIVER: "map" } }, { driver: "map", reads: "mapped, not read", threads: 2 }],
    [{ environment: { MX_DRIVER: "io_uring" } }, { driver: "io_uring", reads: "direct, by io_uring", threads: 2 }],
    [
      { environment: { MX_DRIVER: "io_uring" }, io: { ioUring: "EPERM" } },
      { driver: "io_uring", reads: "none, it is an error: io_uring is refused", threads: 2 },
    ],
    [{ environment: { MX_DRIVER: "x", MX_THREADS: "0" } }, { driver: null, reads: "nothing: MX_DRIVER is not valid", threads: null }],
  ])("says what a load would take: %o", async (change, defaults) => {
    expect((await probeMachine("/models", machine(change))).defaults).toEqual(defaults);
  });

  it("publishes the reason of what is missing", async () => {
    const events: unknown[] = [];
    const listener = (event: unknown) => events.push(event);
    subscribe("modelexpress", listener);
    try {
      await finding("io_uring", { io: { ioUring: "ENOSYS" } });
    } finally {
      unsubscribe("modelexpress", listener);
    }
    expect(events).toEqual([expect.objectContaining({ event: "probe.reason", name: "io_uring" })]);
  });
});

describe("this machine", () => {
  let folder = "";
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), "mx-probe-"));
    writeFileSync(join(folder, "config.json"), "{}");
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  it("is asked about a file of a folder, weights first", async () => {
    expect(await thisMachine.fileAt(folder)).toBe(join(folder, "config.json"));
    writeFileSync(join(folder, "z.safetensors"), "");
    expect(await thisMachine.fileAt(folder)).toBe(join(folder, "z.safetensors"));
    expect(await thisMachine.fileAt(join(folder, "config.json"))).toBe(join(folder, "config.json"));
    expect(await thisMachine.fileAt("/dev/null")).toBeUndefined();
    await expect(thisMachine.fileAt(join(folder, "gone"))).rejects.toThrow(/ENOENT/);
  });

  it("has a file system", async () => {
    expect(fileSystemName(await thisMachine.fileSystemType(folder))).toMatch(/^\w+$/);
  });
});

it.each([
  [0xef53, "ext4"],
  [0xff534d42, "cifs"],
  [0xff534d42 | 0, "cifs"],
  [0x1234, "0x1234"],
])("fileSystemName(%d)", (type, name) => {
  expect(fileSystemName(type)).toBe(name);
});
