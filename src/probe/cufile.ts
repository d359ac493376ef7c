import { addon } from "../native/load.js";
import { cufileNames } from "../transfer/gds/available.js";
import { cufileConfiguration } from "../transfer/gds/cufile-configuration.js";
import { formatBytes } from "../units.js";
import { type Finding, found, missing, unknown } from "./finding.js";
import type { ReadText } from "./read-text.js";

/** cuFile's library: under which name, where, which version. Loads it, and calls nothing of it. */
export function cufileFinding(read: ReadText): Finding {
  const name = "cufile";
  const refusals: string[] = [];
  for (const library of cufileNames) {
    const why = addon().whyLibraryNotLoadable(library);
    if (why !== null) {
      refusals.push(why);
      continue;
    }
    // The kernel names mapped files as they are behind all links; cuFile's is named for its
    // version.
    const path = /^[^/\n]*(\/.*\/libcufile\.so[^/\n]*)$/m.exec(read("/proc/self/maps") ?? "")?.[1] ?? null;
    const version = /\.so\.(\d+\.\d[\d.]*)$/.exec(path ?? "")?.[1] ?? null;
    return found(name, `${library}, at ${path ?? "a place unknown"}, version ${version ?? "unknown"}`, { library, path, version });
  }
  const because = refusals.every((why) => why.includes("No such file"))
    ? `${cufileNames.join(" and ")} are not there`
    : refusals.join("; ");
  return missing(name, because, "Install cuFile (package libcufile of the CUDA toolkit).");
}

/** What cuFile's configuration says. */
export function cufileConfigurationFinding(environment: NodeJS.ProcessEnv, read: ReadText): Finding {
  const name = "cufile-configuration";
  const { path, found: isFound, limitBytes, compatibilityMode, p2pDma } = cufileConfiguration(environment, read);
  if (!isFound) return unknown(name, `${path} is not there: cuFile's own defaults count, compatibility mode by default`);
  const limit = limitBytes === undefined ? "its default of registered bytes" : `at most ${formatBytes(limitBytes)} registered`;
  const compatibility =
    compatibilityMode === undefined
      ? "compatibility mode by default"
      : `compatibility mode ${compatibilityMode ? "allowed" : "not allowed"}`;
  const peer = p2pDma === undefined ? "" : `, PCI P2PDMA ${p2pDma ? "allowed" : "not allowed"}`;
  return found(name, `${path}: ${limit}, ${compatibility}${peer}`, {
    path,
    limitBytes: limitBytes ?? null,
    compatibilityMode: compatibilityMode ?? null,
    p2pDma: p2pDma ?? null,
  });
}
