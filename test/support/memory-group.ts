import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { onTestFinished, type TestContext } from "vitest";
import { cgroupFolders } from "../../src/probe/cgroup.js";
import { readText } from "../../src/probe/read-text.js";
import { sleep } from "./loading.js";
import { unavailable } from "./unavailable.js";

/**
 * A control group whose memory can be limited, below the one that the tests run in. Goes away with
 * the test.
 */
export interface MemoryGroup {
  readonly folder: string;
  readonly version: 1 | 2;
  /** Words in front of a command that put it into the group. */
  readonly under: readonly string[];
  /** Processes of the group that the kernel killed because of its limit. */
  killed(): number;
}

let made = 0;

/** Makes one, or ends the test as not available where that cannot be. */
export function memoryGroup(context: TestContext): MemoryGroup {
  const [own] = cgroupFolders("memory", readText);
  const parent = own?.folders[0];
  if (own === undefined || parent === undefined) unavailable(context, "no control group for memory is mounted");
  const folder = join(parent, `mx-test-${process.pid}-${made++}`);
  const { version } = own;
  try {
    mkdirSync(folder);
  } catch (error) {
    unavailable(context, `no control group can be made (${(error as NodeJS.ErrnoException).code})`);
  }
  onTestFinished(() => removed(folder));
  if (!existsSync(join(folder, limitFile(version)))) unavailable(context, "the control groups made here have no limit on memory");
  try {
    // As it is: shows whether it may be set.
    writeFileSync(join(folder, limitFile(version)), version === 1 ? "-1" : "max");
  } catch (error) {
    unavailable(context, `no control group's memory can be limited (${(error as NodeJS.ErrnoException).code})`);
  }
  const events = join(folder, version === 1 ? "memory.oom_control" : "memory.events");
  return {
    folder,
    version,
    under: ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', folder],
    killed: () => Number(/^oom_kill (\d+)$/m.exec(readFileSync(events, "utf8"))?.[1]),
  };
}

export function limitFile(version: 1 | 2): string {
  return version === 1 ? "memory.limit_in_bytes" : "memory.max";
}

export function usageFile(version: 1 | 2): string {
  return version === 1 ? "memory.usage_in_bytes" : "memory.current";
}

/** A process that has ended leaves its group a moment later. */
async function removed(folder: string): Promise<void> {
  for (let tries = 0; ; tries++) {
    try {
      rmdirSync(folder);
      return;
    } catch (error) {
      if (tries === 100) throw error;
      await sleep(20);
    }
  }
}
