import { type ReadText, readText } from "../../probe/read-text.js";
import { formatBytes } from "../../units.js";
import { cufileConfiguration } from "./cufile-configuration.js";

/**
 * Counters of the kernel module nvidia-fs, through which cuFile's direct reads go, of the whole
 * machine since they were last cleared.
 */
export const nvidiaFsStatisticsPath = "/proc/driver/nvidia-fs/stats";
const enableCounting = "write 1 to /sys/module/nvidia_fs/parameters/rw_stats_enabled";

/**
 * How cuFile brought bytes, as counters prove it; never taken from what the machine should be able
 * to do.
 */
export interface GdsPath {
  /**
   * `direct`: all went through nvidia-fs, straight to the device. `mixed`: not all.
   * `compatibility`: none, cuFile read into host memory and copied. `unknown`: the counters do not
   * prove any of it.
   */
  readonly taken: "direct" | "mixed" | "compatibility" | "unknown";
  /** What says so, or why nothing does. */
  readonly why: string;
}

/** What nvidia-fs tells; undefined where it does not count. */
export interface NvidiaFsStatistics {
  readonly reads: number | undefined;
  /** Whole MiB, rounded down. */
  readonly readMib: number | undefined;
  /** Processes that have nvidia-fs open. */
  readonly activeProcesses: number | undefined;
}

/**
 * Reads the text of {@link nvidiaFsStatisticsPath}, in the form of nvidia-fs 2.3 to 2.29
 * (`nvfs-stat.c` of its sources): a line `Reads : n=10 ok=10 err=0 readMiB=40 ...` while reads are
 * counted, `Reads : err=0 ...` while not. Undefined for another text.
 */
export function parseNvidiaFsStatistics(text: string): NvidiaFsStatistics | undefined {
  if (!/^Reads\s*:/m.test(text)) return undefined;
  const reads = text.match(/^Reads\s*:.*\bn=(\d+).*\breadMiB=(\d+)/m);
  const disabled = /^IO stats:\s*Disabled/m.test(text);
  const active = text.match(/^Active Process:\s*(\d+)/m)?.[1];
  return {
    reads: reads === null || disabled ? undefined : Number(reads[1]),
    readMib: reads === null || disabled ? undefined : Number(reads[2]),
    activeProcesses: active === undefined ? undefined : Number(active),
  };
}

const mib = 2 ** 20;
/** Counters are in whole MiB: below this they say too little of which bytes they counted. */
const leastBytes = 16 * mib;

/** Counts that are running in this process: the counters cannot tell their reads apart. */
const running = new Set<GdsCount>();

/**
 * One look at the counters before reads through cuFile, and one after them. Begin it before cuFile
 * is opened, end it before it is closed.
 */
export class GdsCount {
  readonly #read: ReadText;
  readonly #before: NvidiaFsStatistics | string;
  #alone: boolean;

  constructor(read: ReadText = readText) {
    this.#read = read;
    this.#before = look(read);
    this.#alone = running.size === 0;
    for (const other of running) other.#alone = false;
    running.add(this);
  }

  /** Ends the count. @param bytes what was read through cuFile meanwhile, by this count's owner */
  end(bytes: number): GdsPath {
    running.delete(this);
    const after = look(this.#read);
    if (typeof this.#before === "string") return unknown(this.#before);
    if (typeof after === "string") return unknown(after);
    return pathBetween(this.#before, after, { bytes, alone: this.#alone, p2pDma: cufileConfiguration(process.env, this.#read).p2pDma });
  }

  /** Ends the count of reads that failed. */
  forget(): void {
    running.delete(this);
  }
}

/** @internal */
export function pathBetween(
  before: NvidiaFsStatistics,
  after: NvidiaFsStatistics,
  { bytes, alone, p2pDma }: { readonly bytes: number; readonly alone: boolean; readonly p2pDma: boolean | undefined },
): GdsPath {
  if (before.reads === undefined || after.reads === undefined || before.readMib === undefined || after.readMib === undefined) {
    return unknown(`nvidia-fs does not count reads: ${enableCounting}`);
  }
  const [reads, grownMib] = [after.reads - before.reads, after.readMib - before.readMib];
  if (reads < 0 || grownMib < 0) return unknown("the counters of nvidia-fs were cleared meanwhile");
  if (p2pDma === true) return unknown("cuFile's configuration allows PCI P2PDMA, whose reads nvidia-fs does not see");
  if (reads === 0) return { taken: "compatibility", why: `nvidia-fs counted no read while ${formatBytes(bytes)} were read` };
  // Two counts rounded down: less than one MiB more may have passed. Whoever else reads makes it
  // only more.
  if ((grownMib + 1) * mib <= bytes) {
    return { taken: "mixed", why: `nvidia-fs counted ${grownMib} MiB while ${formatBytes(bytes)} were read` };
  }
  if (!alone) return unknown("other loads of this process went through nvidia-fs meanwhile");
  const processes = Math.max(before.activeProcesses ?? 2, after.activeProcesses ?? 2);
  if (processes > 1) return unknown("other processes use nvidia-fs, whose counters are of the whole machine");
  if (bytes < leastBytes) return unknown(`nvidia-fs counts whole MiB, too coarse for ${formatBytes(bytes)}`);
  return {
    taken: "direct",
    why: `nvidia-fs counted ${grownMib} MiB in ${reads} reads while ${formatBytes(bytes)} were read, by this process alone`,
  };
}

function look(read: ReadText): NvidiaFsStatistics | string {
  const text = read(nvidiaFsStatisticsPath);
  if (text === undefined) return `${nvidiaFsStatisticsPath} cannot be read`;
  return parseNvidiaFsStatistics(text) ?? `${nvidiaFsStatisticsPath} is of an unknown form`;
}

function unknown(why: string): GdsPath {
  return { taken: "unknown", why };
}
