import { readdirSync, readFileSync } from "node:fs";

/** What this process holds now, from /proc/self. */
export interface ProcessCounters {
  readonly descriptors: number;
  readonly threads: number;
  /** Mapped address space and resident memory. */
  readonly virtualBytes: number;
  readonly residentBytes: number;
  /**
   * Number of memory mappings, the pages of V8's heap left out: they come and go with what the test
   * allocates.
   */
  readonly mappings: number;
}

export function processCounters(): ProcessCounters {
  const status = readFileSync("/proc/self/status", "utf8");
  const field = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+)`, "m").exec(status)?.[1]);
  return {
    descriptors: readdirSync("/proc/self/fd").length,
    threads: field("Threads"),
    virtualBytes: field("VmSize") * 1024,
    residentBytes: field("VmRSS") * 1024,
    mappings: readFileSync("/proc/self/maps", "utf8")
      .trimEnd()
      .split("\n")
      .filter((line) => !isPageOfV8(line)).length,
  };
}

/** Size of a page of V8's heap, in bytes. Each is an anonymous mapping at an address of its own. */
const v8PageBytes = 256 * 1024;

function isPageOfV8(line: string): boolean {
  const [range = "", permissions, , , inode] = line.split(/\s+/);
  const [start = 0, end = 0] = range.split("-").map((address) => Number.parseInt(address, 16));
  return inode === "0" && permissions === "rw-p" && end - start === v8PageBytes;
}

/**
 * Collects garbage until finalizers have run; needs `--expose-gc`, which the test configuration
 * gives.
 */
export async function collectGarbage(): Promise<void> {
  if (globalThis.gc === undefined) throw new Error("run Node with --expose-gc");
  for (let round = 0; round < 3; round++) {
    globalThis.gc();
    await new Promise((resolve) => setImmediate(resolve));
  }
}
