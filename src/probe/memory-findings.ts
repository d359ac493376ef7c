import { formatBytes } from "../units.js";
import { type Finding, found, unknown } from "./finding.js";
import type { Machine } from "./machine.js";
import { readAvailableMemory, readMemoryLimits } from "./memory.js";

/** Memory that a load can take now, and the control groups that limit it. */
export function memoryFindings({ read }: Machine): Finding[] {
  return [availableFinding(readAvailableMemory(read)), limitFinding(readMemoryLimits(read))];
}

function availableFinding({ bytes, limitedBy }: ReturnType<typeof readAvailableMemory>): Finding {
  const name = "memory";
  if (bytes === null) return unknown(name, "/proc/meminfo does not tell MemAvailable", "Plans cannot be held against the memory there is.");
  return found(name, `${formatBytes(bytes)} available (${limitedBy})`, { availableBytes: bytes, limitedBy });
}

function limitFinding(limits: ReturnType<typeof readMemoryLimits>): Finding {
  const name = "memory-limit";
  const [tightest] = [...limits].sort((a, b) => a.availableBytes - b.availableBytes);
  if (tightest === undefined) return found(name, "no control group limits it", { limitBytes: null });
  const { folder, limitBytes, availableBytes } = tightest;
  return found(name, `${folder} allows ${formatBytes(limitBytes)}, ${formatBytes(availableBytes)} of it free`, {
    folder,
    limitBytes,
    availableBytes,
  });
}
