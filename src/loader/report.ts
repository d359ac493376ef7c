import type { DeviceName } from "../arena/device-name.js";
import type { Checkpoint } from "../checkpoint/checkpoint.js";
import { entryOf } from "../columns.js";
import type { DriverName } from "../envs.js";
import { firstOf, withShortForm } from "../inspection.js";
import { type LoadPlan, planColumns } from "../plan/load-plan.js";
import type { PlanMemory } from "../plan/memory.js";
import type { BatchSummary, NixlBatchSummary, ReadPath } from "../transfer/driver.js";
import { formatBytes, formatDuration, formatRate } from "../units.js";
import type { MemoryCheck } from "./memory-check.js";

/** What a load really did. Plain data; `mx load --json` prints it. */
export interface LoadReport {
  readonly path: string;
  /** Where the tensors are. */
  readonly device: DeviceName;
  /** Driver that was asked for, and the ways its bytes took. */
  readonly driver: { readonly asked: DriverName; readonly used: readonly ReadPath[] };
  readonly shards: readonly ShardReport[];
  readonly tensors: number;
  /** Bytes of the tensors loaded. */
  readonly bytes: number;
  /**
   * Bytes that were in the page cache; null where the kernel does not tell, or nothing was read.
   */
  readonly bytesFromCache: number | null;
  /** Bytes that came from the disk; null likewise. */
  readonly bytesFromDisk: number | null;
  /** `bytes` over the time of the transfer; null where nothing was moved. */
  readonly bytesPerSecond: number | null;
  readonly ranges: number;
  /** Reads that were made. */
  readonly reads: number;
  readonly threads: number;
  readonly allocationBytes: number;
  /** What the load was to take, against what there was when it was planned. */
  readonly memory: MemoryReport;
  /**
   * Bytes of the allocation in huge pages at the end of the load; null where the kernel does not
   * tell, and on a device.
   */
  readonly hugePageBytes: number | null;
  /**
   * What NIXL did: registrations, windows, time, and whether cuFile read directly; null where it
   * read nothing.
   */
  readonly nixl: NixlBatchSummary | null;
  readonly times: LoadTimes;
}

/** `fits` is what the check found, and `check` whether that was to count. */
export interface MemoryReport extends PlanMemory {
  readonly check: MemoryCheck;
  /** Bytes of pages that were kept of an earlier load (`keepPages`). */
  readonly reusedBytes: number;
}

/** Milliseconds of each phase; `totalMs` from the call to the last byte in place. */
export interface LoadTimes {
  readonly openMs: number;
  readonly planMs: number;
  readonly allocateMs: number;
  readonly transferMs: number;
  readonly totalMs: number;
}

export interface ShardReport {
  readonly name: string;
  readonly file: string;
  readonly placement: "packed" | "aligned";
  readonly used: readonly ReadPath[];
  /** Why these ways, in words. */
  readonly reason: string;
  /**
   * What tells the file again and its file system did not keep, as on many FUSE mounts. The bytes
   * are of one open file all the same, whose header is the planned one.
   */
  readonly identityNotKept: readonly ("inode" | "mtime")[];
  readonly bytes: number;
  readonly bytesFromCache: number | null;
  readonly bytesFromDisk: number | null;
}

export interface ReportParts {
  readonly checkpoint: Checkpoint;
  readonly plan: LoadPlan;
  readonly driver: DriverName;
  readonly threads: number;
  readonly memoryCheck: MemoryCheck;
  readonly reusedBytes: number;
  readonly summary: BatchSummary;
  readonly hugePageBytes: number | null;
  readonly times: LoadTimes;
}

export function makeReport(parts: ReportParts): LoadReport {
  const { plan, summary, times, hugePageBytes } = parts;
  const shards = plan.shards.map((shard) => shardReport(shard, parts.driver, plan.device, summary));
  const sum = (values: readonly (number | null)[]): number | null =>
    values.reduce<number | null>((total, value) => (total === null || value === null ? null : total + value), 0);
  const report: LoadReport = {
    path: parts.checkpoint.path,
    device: plan.device,
    driver: Object.freeze({ asked: parts.driver, used: Object.freeze([...new Set(shards.flatMap((shard) => shard.used))]) }),
    shards: Object.freeze(shards),
    tensors: planColumns(plan).rows.length,
    bytes: plan.totals.bytes,
    bytesFromCache: sum(shards.map((shard) => shard.bytesFromCache)),
    bytesFromDisk: sum(shards.map((shard) => shard.bytesFromDisk)),
    bytesPerSecond: parts.driver === "map" || plan.totals.bytes === 0 ? null : Math.round(plan.totals.bytes / (times.transferMs / 1000)),
    ranges: plan.totals.ranges,
    reads: summary.reads,
    threads: parts.threads,
    allocationBytes: plan.totals.allocationBytes,
    memory: Object.freeze({ check: parts.memoryCheck, reusedBytes: parts.reusedBytes, ...plan.memory }),
    hugePageBytes,
    nixl: summary.nixl === undefined ? null : Object.freeze(summary.nixl),
    times: Object.freeze(times),
  };
  return Object.freeze(withShortForm(report, "LoadReport", shortForm));
}

function shortForm({ path, device, driver, shards, tensors, bytes, bytesFromCache, bytesPerSecond, threads, times }: LoadReport): object {
  return {
    path,
    device,
    driver: `${driver.asked}: ${driver.used.join(" and ") || "nothing to read"}`,
    tensors,
    bytes: formatBytes(bytes),
    fromCache: bytesFromCache === null ? null : formatBytes(bytesFromCache),
    speed: bytesPerSecond === null ? null : formatRate(bytesPerSecond),
    time: formatDuration(times.totalMs),
    threads,
    shards: firstOf(shards, ({ name, reason }) => `${name}: ${reason}`),
  };
}

function shardReport(shard: LoadPlan["shards"][number], driver: DriverName, device: DeviceName, summary: BatchSummary): ShardReport {
  const at = <T>(column: ArrayLike<T>) => entryOf(column, shard.index);
  const [buffered, cached, direct] = [at(summary.bufferedBytes), at(summary.cachedBytes), at(summary.directBytes)];
  const fallback = at(summary.fallback);
  const way = summary.ways?.[shard.index];
  const used: ReadPath[] = [];
  if (driver === "map") used.push("map");
  else if (way !== undefined) used.push(way);
  else {
    if (buffered > 0) used.push("buffered");
    if (direct > 0) used.push(summary.directByThreads[shard.index] === 1 ? "direct-threads" : "io_uring");
  }
  return Object.freeze({
    name: shard.name,
    file: shard.file,
    placement: shard.placement,
    used: Object.freeze(used),
    reason: device === "host" ? reasonFor(driver, { buffered, cached, direct, fallback }) : deviceReason(driver, way, fallback),
    identityNotKept: Object.freeze(identityNotKept(entryOf(summary.unkept, shard.index))),
    bytes: shard.bytes,
    bytesFromCache: cached,
    bytesFromDisk: cached === null ? null : buffered + direct - cached,
  });
}

/** The names of the bits of `unkept`. */
export function identityNotKept(bits: number): ("inode" | "mtime")[] {
  return [...((bits & 1) === 0 ? [] : (["inode"] as const)), ...((bits & 2) === 0 ? [] : (["mtime"] as const))];
}

function deviceReason(driver: DriverName, way: ReadPath | undefined, fallback: string): string {
  if (driver !== "auto") return fallback === "" ? "asked for by name" : `asked for by name; ${fallback}`;
  if (way === undefined) return "nothing to read";
  return way === "nixl" ? "GPUDirect Storage is available, and the file could be registered" : `no GPUDirect Storage: ${fallback}`;
}

interface ShardBytes {
  readonly buffered: number;
  readonly cached: number | null;
  readonly direct: number;
  readonly fallback: string;
}

function reasonFor(driver: DriverName, { buffered, cached, direct, fallback }: ShardBytes): string {
  if (driver !== "auto") return "asked for by name";
  const found =
    buffered + direct === 0
      ? "nothing to read"
      : cached === null
        ? "what the page cache held is not known"
        : direct === 0 && cached === buffered
          ? "all in the page cache"
          : cached === 0
            ? "nothing in the page cache"
            : `${cached} of ${buffered + direct} bytes in the page cache`;
  return fallback === "" ? found : `${found}; ${fallback}`;
}
