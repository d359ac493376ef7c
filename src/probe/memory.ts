import { cgroupFolders } from "./cgroup.js";
import { type ReadText, readText } from "./read-text.js";

/** Memory that a load can take now. */
export interface AvailableMemory {
  /** Bytes; null where the kernel says nothing. */
  readonly bytes: number | null;
  /** What sets the bound: `MemAvailable`, the folder of a control group, or `unknown`. */
  readonly limitedBy: string;
}

/**
 * A limit of this size or more means none: version 1 writes the largest multiple of a page below
 * 2^63.
 */
const unlimitedBytes = 2 ** 60;

/**
 * The smaller of the machine's MemAvailable (proc_meminfo(5)) and what each control group above
 * this process has left: its limit less its usage, where file cache counts as free because the
 * kernel drops it first. Swap is not counted. Reads a handful of kernel files.
 */
export function readAvailableMemory(read: ReadText = readText): AvailableMemory {
  let bytes: number | null = null;
  let limitedBy = "unknown";
  const kib = /^MemAvailable:\s+(\d+) kB$/m.exec(read("/proc/meminfo") ?? "")?.[1];
  if (kib !== undefined) {
    bytes = Number(kib) * 1024;
    limitedBy = "MemAvailable";
  }
  for (const limit of readMemoryLimits(read)) {
    if (bytes === null || limit.availableBytes < bytes) {
      bytes = limit.availableBytes;
      limitedBy = limit.folder;
    }
  }
  return Object.freeze({ bytes, limitedBy });
}

export interface MemoryLimit {
  readonly folder: string;
  readonly limitBytes: number;
  readonly availableBytes: number;
}

/**
 * Where a group's limits and its usage stand. Above `memory.high` nothing is killed, and everything
 * crawls: it counts as a limit. Version 1's limit on memory and swap is never below that on memory,
 * and none where that is none.
 */
const counters = {
  1: {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    also: { limit: "memory.memsw.limit_in_bytes", used: "memory.memsw.usage_in_bytes" },
    alsoWithoutLimit: false,
  },
  2: {
    limit: "memory.max",
    used: "memory.current",
    also: { limit: "memory.high", used: "memory.current" },
    alsoWithoutLimit: true,
  },
} as const;

/**
 * The limits on this process's memory that control groups set, those of its own group first. Files
 * that cannot matter are not read.
 */
export function readMemoryLimits(read: ReadText = readText): MemoryLimit[] {
  const limits: MemoryLimit[] = [];
  for (const { version, folders } of cgroupFolders("memory", read)) {
    const { also, alsoWithoutLimit, ...first } = counters[version];
    for (const folder of folders) {
      const limit = memoryLimit(folder, version, first, read);
      if (limit !== undefined) limits.push(limit);
      if (limit === undefined && !alsoWithoutLimit) continue;
      const second = memoryLimit(folder, version, also, read);
      if (second !== undefined) limits.push(second);
    }
  }
  return limits;
}

/** Undefined where there is none. */
function memoryLimit(
  folder: string,
  version: 1 | 2,
  { limit, used }: { readonly limit: string; readonly used: string },
  read: ReadText,
): MemoryLimit | undefined {
  const limitBytes = integer(read(`${folder}/${limit}`));
  if (limitBytes === undefined || limitBytes >= unlimitedBytes) return undefined;
  const usedBytes = integer(read(`${folder}/${used}`));
  if (usedBytes === undefined) return undefined;
  const cache = fileCacheBytes(read(`${folder}/memory.stat`) ?? "", version);
  return { folder, limitBytes, availableBytes: Math.max(0, limitBytes - usedBytes + Math.min(cache, usedBytes)) };
}

/** File pages on the lists that the kernel reclaims from; shared memory is not among them. */
function fileCacheBytes(stat: string, version: 1 | 2): number {
  const prefix = version === 2 ? "" : "total_";
  const value = (key: string) => Number(new RegExp(`^${prefix}${key} (\\d+)$`, "m").exec(stat)?.[1] ?? 0);
  return value("inactive_file") + value("active_file");
}

/** Undefined for `max` and for a file that is not there. */
function integer(text: string | undefined): number | undefined {
  return /^\d+$/.test(text?.trim() ?? "") ? Number(text) : undefined;
}
