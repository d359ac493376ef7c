import { formatBytes } from "../units.js";
import { type Finding, found, missing, unknown } from "./finding.js";
import type { Machine } from "./machine.js";

/** Limits of this process (getrlimit(2)) that a load can run into. */
export function limitFindings({ read }: Machine): Finding[] {
  const text = read("/proc/self/limits") ?? "";
  return [
    addressSpaceFinding(softLimit(text, "Max address space")),
    lockedMemoryFinding(softLimit(text, "Max locked memory")),
    openFilesFinding(softLimit(text, "Max open files")),
  ];
}

/**
 * Soft limit of one line of /proc/self/limits: a number, `null` for unlimited, undefined where it
 * is not told.
 */
function softLimit(text: string, label: string): number | null | undefined {
  const line = text.split("\n").find((candidate) => candidate.startsWith(label));
  const soft = /^\s+(\d+|unlimited)\s/.exec(line?.slice(label.length) ?? "")?.[1];
  return soft === undefined ? undefined : soft === "unlimited" ? null : Number(soft);
}

const untold = "/proc/self/limits does not tell";

function addressSpaceFinding(bytes: number | null | undefined): Finding {
  const name = "address-space";
  if (bytes === undefined) return unknown(name, untold);
  if (bytes === null) return found(name, "not limited", { limitBytes: null });
  const why = `limited to ${formatBytes(bytes)}: an arena of the default size (16 TiB) is refused, a load reserves only what its plan needs`;
  return missing(name, why, "ulimit -v unlimited, or give arenas a smaller `totalBytes`.", { limitBytes: bytes });
}

function lockedMemoryFinding(bytes: number | null | undefined): Finding {
  const name = "locked-memory";
  if (bytes === undefined) return unknown(name, untold);
  return found(name, bytes === null ? "not limited" : `at most ${formatBytes(bytes)} (ulimit -l)`, { limitBytes: bytes });
}

function openFilesFinding(count: number | null | undefined): Finding {
  const name = "open-files";
  if (count === undefined) return unknown(name, untold);
  return found(name, count === null ? "not limited" : `at most ${count} (ulimit -n)`, { limit: count });
}
