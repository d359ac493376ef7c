import { cgroupFolders } from "./cgroup.js";
import { type Finding, found, unknown } from "./finding.js";
import type { Machine } from "./machine.js";
import type { ReadText } from "./read-text.js";

/** Processors of the machine, and how many of them this process may use. */
export function processorsFinding(machine: Machine): Finding {
  const name = "processors";
  const installed = machine.processors();
  const quota = readCpuQuota(machine.read);
  const usable = usableProcessors(machine);
  const facts = { installed, usable, quota };
  const limit = quota === null ? "" : `, a control group allows the time of ${quota}`;
  if (usable === null)
    return unknown(name, `${installed} in the machine${limit}; the native addon could not ask how many may be used`, null, facts);
  return found(name, `${usable} of ${installed} may be used${limit}`, facts);
}

/** Null where the addon cannot be asked. */
export function usableProcessors(machine: Machine): number | null {
  try {
    return machine.addon().availableParallelism();
  } catch {
    // The finding on the addon says why.
    return null;
  }
}

/**
 * Processors' worth of time that the tightest control group allows, or null where none sets a
 * limit.
 */
export function readCpuQuota(read: ReadText): number | null {
  let smallest: number | null = null;
  for (const { version, folders } of cgroupFolders("cpu", read)) {
    for (const folder of folders) {
      const [quota, period] =
        version === 2
          ? (read(`${folder}/cpu.max`) ?? "").trim().split(" ")
          : [read(`${folder}/cpu.cfs_quota_us`), read(`${folder}/cpu.cfs_period_us`)];
      const processors = Number(quota) / Number(period);
      if (processors > 0 && Number.isFinite(processors) && (smallest === null || processors < smallest)) smallest = processors;
    }
  }
  return smallest;
}
