import { describe, expect, it } from "vitest";
import { GdsCount, nvidiaFsStatisticsPath, parseNvidiaFsStatistics } from "../../src/transfer/gds/path-statistics.js";

const MIB = 2 ** 20;

/** As nvidia-fs 2.29 writes it while reads are counted. */
function counted({ reads = 0, mib = 0, active = 1 } = {}): string {
  return `GDS Version: 1.18.0.62
NVFS statistics(ver: 4.0)
NVFS Driver(version: 2.29.4)
Mellanox PeerDirect Supported: True
IO stats: Enabled, peer IO stats: Enabled
Logging level: info

Active Shadow-Buffer (MiB): 128
Active Process: ${active}
Batches\t\t\t\t: n=7 ok=7 err=0 Avg-Submit-Latency(usec)=9
Reads\t\t\t\t: n=${reads} ok=${reads} err=0 readMiB=${mib} io_state_err=0
Reads\t\t\t\t: Bandwidth(MiB/s)=13081 Avg-Latency(usec)=9773
Sparse Reads\t\t        : n=19783 io=0 holes=0 pages=0
Writes\t\t\t\t: n=309 ok=309 err=0 writeMiB=9748 io_state_err=0 pg-cache=0 pg-cache-fail=0 pg-cache-eio=0
Writes\t\t\t\t: Bandwidth(MiB/s)=6958 Avg-Latency(usec)=18386
Mmap\t\t\t\t: n=3584 ok=3584 err=0 munmap=3456
Bar1-map\t\t\t: n=3584 ok=3584 err=0 free=3456 callbacks=0 active=128 delay-frees=0
Error\t\t\t\t: cpu-gpu-pages=0 sg-ext=0 dma-map=0 dma-ref=0
Ops\t\t\t\t: Read=0 Write=0 BatchIO=0
GPU 0000:be:00.0  uuid:87e5c586-88ed-583b-df45-fcee0f1e7917 : Registered_MiB=0 Cache_MiB=0 max_pinned_MiB=1
`;
}

/** As nvidia-fs 2.25 writes it by default. */
const disabled = `GDS Version: 1.14.0.31
NVFS statistics(ver: 4.0)
NVFS Driver(version: 2.25.7)
Mellanox PeerDirect Supported: True
IO stats: Disabled, peer IO stats: Disabled
Logging level: info

Active Shadow-Buffer (MiB): 0
Active Process: 1
Reads\t\t\t\t: err=0 io_state_err=0
Sparse Reads\t\t        : n=0 io=0 holes=0 pages=0
Mmap\t\t\t\t: n=1 ok=1 err=0 munmap=2
`;

/** As nvidia-fs 2.3 wrote it. */
const old = `GDS Version: 0.9.0.743
NVFS statistics(ver: 2.0)
NVFS Driver(version: 2:3:1)
Active Shadow-Buffer (MiB): 128
Active Process: 1
Reads : n=424436862 ok=424436734 err=0 readMiB=21518771 io_state_err=0
Reads : Bandwidth(MiB/s)=13081 Avg-Latency(usec)=9773
Sparse Reads : n=19783000 io=0 holes=0 pages=0
`;

describe("the counters of nvidia-fs", () => {
  it.each([
    ["2.29, counting", counted({ reads: 12, mib: 40, active: 3 }), { reads: 12, readMib: 40, activeProcesses: 3 }],
    ["2.25, not counting", disabled, { reads: undefined, readMib: undefined, activeProcesses: 1 }],
    ["2.3", old, { reads: 424_436_862, readMib: 21_518_771, activeProcesses: 1 }],
  ])("are read in the form of %s", (_, text, expected) => {
    expect(parseNvidiaFsStatistics(text)).toEqual(expected);
  });

  it.each(["", "\n\n", "no such thing", "Sparse Reads : n=1", "Writes : n=1 ok=1"])("are not taken from %j", (text) => {
    expect(parseNvidiaFsStatistics(text)).toBeUndefined();
  });
});

/** The path that two looks prove for so many bytes. */
function between(before: string | undefined, after: string | undefined, bytes: number, configuration?: string) {
  const texts = [before, after];
  const count = new GdsCount((path) => (path === nvidiaFsStatisticsPath ? texts.shift() : configuration));
  return count.end(bytes);
}

describe("the path of reads through cuFile", () => {
  it.each([
    ["all counted, and nobody else", counted({ reads: 5, mib: 10 }), counted({ reads: 69, mib: 74 }), 64 * MIB, "direct"],
    [
      "one MiB fewer by the rounding of both counts",
      counted({ reads: 5, mib: 10 }),
      counted({ reads: 69, mib: 73 }),
      64 * MIB - 1,
      "direct",
    ],
    ["no read counted", counted({ reads: 5, mib: 10 }), counted({ reads: 5, mib: 10 }), 64 * MIB, "compatibility"],
    ["no read counted of a few bytes", counted({ reads: 5 }), counted({ reads: 5 }), 1, "compatibility"],
    ["too few counted", counted({ reads: 5, mib: 10 }), counted({ reads: 69, mib: 72 }), 64 * MIB, "mixed"],
    ["too few counted, others' included", counted({ active: 2 }), counted({ reads: 1, mib: 10, active: 2 }), 64 * MIB, "mixed"],
    ["all counted, with another process there before", counted({ active: 2 }), counted({ reads: 64, mib: 64 }), 64 * MIB, "unknown"],
    ["all counted, with another process there after", counted(), counted({ reads: 64, mib: 64, active: 2 }), 64 * MIB, "unknown"],
    ["fewer bytes than the counters can tell", counted(), counted({ reads: 1, mib: 1 }), MIB, "unknown"],
    ["counters that were cleared", counted({ reads: 9, mib: 90 }), counted({ reads: 2, mib: 64 }), 64 * MIB, "unknown"],
    ["counters that are off", disabled, disabled, 64 * MIB, "unknown"],
    ["counters that were switched off meanwhile", counted(), disabled, 64 * MIB, "unknown"],
    ["no counters", undefined, undefined, 64 * MIB, "unknown"],
    ["counters that went away", counted(), undefined, 64 * MIB, "unknown"],
    ["a text of another form", "hello", "hello", 64 * MIB, "unknown"],
  ])("%s", (_, before, after, bytes, taken) => {
    expect(between(before, after, bytes)).toEqual({ taken, why: expect.stringMatching(/\w/) });
  });

  it("is not said where cuFile may read by P2PDMA, past nvidia-fs", () => {
    const nothing = [counted({ reads: 5 }), counted({ reads: 5 })] as const;
    expect(between(...nothing, 64 * MIB, '{ "properties": { "use_pci_p2pdma": true } }').taken).toBe("unknown");
    expect(between(...nothing, 64 * MIB, '{ "properties": { "use_pci_p2pdma": false } }').taken).toBe("compatibility");
  });

  it("is not said of two loads of one process at a time, and is again afterwards", () => {
    const texts = [counted(), counted(), counted({ reads: 64, mib: 64 }), counted({ reads: 64, mib: 64 })];
    const read = (path: string) => (path === nvidiaFsStatisticsPath ? texts.shift() : undefined);
    const [first, second] = [new GdsCount(read), new GdsCount(read)];
    expect([first.end(32 * MIB).taken, second.end(32 * MIB).taken]).toEqual(["unknown", "unknown"]);
    new GdsCount(() => undefined).forget();
    expect(between(counted(), counted({ reads: 64, mib: 64 }), 64 * MIB).taken).toBe("direct");
  });
});
