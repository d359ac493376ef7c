import { type Finding, found, missing, unknown } from "./finding.js";
import type { Machine } from "./machine.js";

const file = "/sys/kernel/mm/transparent_hugepage/enabled";

/**
 * Transparent huge pages for anonymous memory: reads into 4 KiB pages take about twice the time.
 */
export function hugePagesFinding({ read }: Machine): Finding {
  const name = "huge-pages";
  const text = read(file);
  const mode = /\[(\w+)\]/.exec(text ?? "")?.[1];
  if (mode === undefined) return unknown(name, `${file} cannot be read`, "Use a kernel with transparent huge pages.");
  if (mode !== "never")
    return found(name, `transparent huge pages are given ${mode === "always" ? "always" : "on demand (madvise)"}`, { mode });
  return missing(name, "transparent huge pages are switched off (never)", `As root: echo madvise > ${file}.`, { mode });
}
