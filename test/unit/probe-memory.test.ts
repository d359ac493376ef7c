import { describe, expect, it } from "vitest";
import { cgroupFolders } from "../../src/probe/cgroup.js";
import { readAvailableMemory, readMemoryLimits } from "../../src/probe/memory.js";
import { readCpuQuota } from "../../src/probe/processors.js";

const GIB = 2 ** 30;
const meminfo = `MemTotal: 24683652 kB\nMemFree: 100 kB\nMemAvailable:   ${8 * 2 ** 20} kB\n`;
const v2Mount = "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate";

function reader(files: Readonly<Record<string, string>>) {
  return (path: string) => files[path];
}

describe("cgroupFolders", () => {
  it("walks from the process's own group to the root of version 2", () => {
    const read = reader({ "/proc/self/cgroup": "0::/user.slice/job.scope\n", "/proc/self/mountinfo": `${v2Mount}\n` });
    expect(cgroupFolders("memory", read)).toEqual([
      { version: 2, folders: ["/sys/fs/cgroup/user.slice/job.scope", "/sys/fs/cgroup/user.slice", "/sys/fs/cgroup"] },
    ]);
  });

  it("takes the right hierarchy of version 1", () => {
    const read = reader({
      "/proc/self/cgroup": "4:memory:/a\n3:cpuset:/\n2:cpu,cpuacct:/b:c\n0::/\n",
      "/proc/self/mountinfo": [
        "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
        "32 31 0:29 / /sys/fs/cgroup/cpu\\040set rw - cgroup cgroup rw,cpu,cpuacct",
        "33 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset",
      ].join("\n"),
    });
    expect(cgroupFolders("memory", read)).toEqual([{ version: 1, folders: ["/sys/fs/cgroup/memory/a", "/sys/fs/cgroup/memory"] }]);
    expect(cgroupFolders("cpu", read)).toEqual([{ version: 1, folders: ["/sys/fs/cgroup/cpu set/b:c", "/sys/fs/cgroup/cpu set"] }]);
  });

  it.each([
    ["/docker/abc", "/docker/abc/inner", ["/cg/inner", "/cg"]],
    ["/docker/abc", "/docker/abc", ["/cg"]],
    ["/docker/abc", "/docker/abcdef", ["/cg"]],
    ["/docker/abc", "/", ["/cg"]],
    ["/", "/../../other", ["/cg/other", "/cg"]],
  ])("of a container that sees %s as root and is in %s", (root, own, folders) => {
    const read = reader({ "/proc/self/cgroup": `0::${own}\n`, "/proc/self/mountinfo": `1 2 0:28 ${root} /cg rw - cgroup2 cgroup2 rw` });
    expect(cgroupFolders("memory", read)).toEqual([{ version: 2, folders }]);
  });

  it("is empty where nothing is told", () => {
    expect(cgroupFolders("memory", reader({}))).toEqual([]);
    expect(cgroupFolders("memory", reader({ "/proc/self/cgroup": "garbage", "/proc/self/mountinfo": "garbage - garbage" }))).toEqual([]);
  });
});

describe("readAvailableMemory", () => {
  const v2 = { "/proc/meminfo": meminfo, "/proc/self/cgroup": "0::/a/b\n", "/proc/self/mountinfo": v2Mount };

  it("is MemAvailable where no group limits", () => {
    expect(readAvailableMemory(reader({ "/proc/meminfo": meminfo }))).toEqual({ bytes: 8 * GIB, limitedBy: "MemAvailable" });
    const unlimited = { "/sys/fs/cgroup/a/memory.max": "max\n", "/sys/fs/cgroup/a/memory.current": "5\n" };
    expect(readAvailableMemory(reader({ ...v2, ...unlimited }))).toEqual({ bytes: 8 * GIB, limitedBy: "MemAvailable" });
  });

  it("is what a group has left, with its file cache counted as free", () => {
    const files = {
      "/sys/fs/cgroup/a/b/memory.max": `${4 * GIB}\n`,
      "/sys/fs/cgroup/a/b/memory.current": `${3 * GIB}\n`,
      "/sys/fs/cgroup/a/b/memory.stat": `anon 77\nfile 9999999999\nshmem 5\ninactive_file ${GIB}\nactive_file ${GIB / 2}\n`,
    };
    expect(readAvailableMemory(reader({ ...v2, ...files }))).toEqual({ bytes: 2.5 * GIB, limitedBy: "/sys/fs/cgroup/a/b" });
  });

  it("takes the tightest of all groups above", () => {
    const files = {
      "/sys/fs/cgroup/a/b/memory.max": `${4 * GIB}`,
      "/sys/fs/cgroup/a/b/memory.current": "0",
      "/sys/fs/cgroup/a/memory.max": `${2 * GIB}`,
      "/sys/fs/cgroup/a/memory.current": `${1.5 * GIB}`,
    };
    expect(readAvailableMemory(reader({ ...v2, ...files }))).toEqual({ bytes: GIB / 2, limitedBy: "/sys/fs/cgroup/a" });
    expect(readMemoryLimits(reader({ ...v2, ...files })).map(({ folder }) => folder)).toEqual(["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a"]);
  });

  it("takes memory.high for a limit, of every group above", () => {
    const files = {
      "/sys/fs/cgroup/a/b/memory.max": `${4 * GIB}\n`,
      "/sys/fs/cgroup/a/b/memory.high": `${2 * GIB}\n`,
      "/sys/fs/cgroup/a/b/memory.current": `${GIB}\n`,
      "/sys/fs/cgroup/a/memory.max": "max\n",
      "/sys/fs/cgroup/a/memory.high": `${3 * GIB}\n`,
      "/sys/fs/cgroup/a/memory.current": `${2.5 * GIB}\n`,
    };
    expect(readAvailableMemory(reader({ ...v2, ...files }))).toEqual({ bytes: GIB / 2, limitedBy: "/sys/fs/cgroup/a" });
    const noneAbove = { ...files, "/sys/fs/cgroup/a/memory.high": "max\n" };
    expect(readAvailableMemory(reader({ ...v2, ...noneAbove }))).toEqual({ bytes: GIB, limitedBy: "/sys/fs/cgroup/a/b" });
  });

  it("counts version 1's limit on memory and swap together", () => {
    const v1 = {
      "/proc/meminfo": meminfo,
      "/proc/self/cgroup": "4:memory:/job\n",
      "/proc/self/mountinfo": "35 31 0:32 / /cg rw - cgroup cgroup rw,memory",
      "/cg/job/memory.limit_in_bytes": `${2 * GIB}\n`,
      "/cg/job/memory.usage_in_bytes": `${GIB / 2}\n`,
      "/cg/job/memory.memsw.limit_in_bytes": `${2 * GIB}\n`,
      "/cg/job/memory.memsw.usage_in_bytes": `${GIB}\n`,
    };
    expect(readAvailableMemory(reader(v1))).toEqual({ bytes: GIB, limitedBy: "/cg/job" });
  });

  it("is never negative, and counts no more cache than is used", () => {
    const over = { "/sys/fs/cgroup/a/memory.max": "1000", "/sys/fs/cgroup/a/memory.current": "5000" };
    expect(readAvailableMemory(reader({ ...v2, ...over })).bytes).toBe(0);
    const odd = { ...over, "/sys/fs/cgroup/a/memory.current": "100", "/sys/fs/cgroup/a/memory.stat": "inactive_file 700\n" };
    expect(readAvailableMemory(reader({ ...v2, ...odd })).bytes).toBe(1000);
  });

  it("reads version 1, whose largest value means no limit", () => {
    const v1 = {
      "/proc/meminfo": meminfo,
      "/proc/self/cgroup": "4:memory:/job\n",
      "/proc/self/mountinfo": "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
      "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
      "/sys/fs/cgroup/memory/memory.usage_in_bytes": "1\n",
    };
    expect(readAvailableMemory(reader(v1)).limitedBy).toBe("MemAvailable");
    const job = {
      "/sys/fs/cgroup/memory/job/memory.limit_in_bytes": `${GIB}\n`,
      "/sys/fs/cgroup/memory/job/memory.usage_in_bytes": `${GIB / 2}\n`,
      "/sys/fs/cgroup/memory/job/memory.stat": `inactive_file 1\ntotal_inactive_file 1000\ntotal_active_file 24\n`,
    };
    expect(readAvailableMemory(reader({ ...v1, ...job }))).toEqual({ bytes: GIB / 2 + 1024, limitedBy: "/sys/fs/cgroup/memory/job" });
  });

  it("is unknown where the kernel says nothing", () => {
    expect(readAvailableMemory(reader({}))).toEqual({ bytes: null, limitedBy: "unknown" });
  });

  it("reads this machine", () => {
    expect(readAvailableMemory().bytes).toBeGreaterThan(2 ** 20);
  });
});

describe("readCpuQuota", () => {
  const v2 = { "/proc/self/cgroup": "0::/a\n", "/proc/self/mountinfo": v2Mount };

  it("takes the tightest group of version 2", () => {
    expect(readCpuQuota(reader({ ...v2, "/sys/fs/cgroup/a/cpu.max": "max 100000\n" }))).toBeNull();
    expect(
      readCpuQuota(reader({ ...v2, "/sys/fs/cgroup/a/cpu.max": "250000 100000\n", "/sys/fs/cgroup/cpu.max": "150000 100000\n" })),
    ).toBe(1.5);
  });

  it("reads version 1, where -1 means none", () => {
    const v1 = { "/proc/self/cgroup": "2:cpu:/\n", "/proc/self/mountinfo": "32 31 0:29 / /cg/cpu rw - cgroup cgroup rw,cpu" };
    expect(readCpuQuota(reader({ ...v1, "/cg/cpu/cpu.cfs_quota_us": "-1\n", "/cg/cpu/cpu.cfs_period_us": "100000\n" }))).toBeNull();
    expect(readCpuQuota(reader({ ...v1, "/cg/cpu/cpu.cfs_quota_us": "200000\n", "/cg/cpu/cpu.cfs_period_us": "100000\n" }))).toBe(2);
    expect(readCpuQuota(reader(v1))).toBeNull();
  });
});
