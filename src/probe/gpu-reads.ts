import type { Finding } from "./finding.js";

/**
 * What a load with the driver `auto` comes to on a CUDA device, by these findings; a file system
 * can refuse all the same.
 */
export function gpuReads(findings: readonly Finding[]): string {
  const has = (name: string) => findings.find((finding) => finding.name === name)?.found === true;
  if (!has("cuda")) return "none: there is no CUDA device";
  const lacks = ["nixl", "nvidia_fs", "cufile"].filter((name) => !has(name));
  if (lacks.length > 0) return `through pinned buffers of the host, for lack of ${lacks.join(", ")}`;
  return "straight from storage, by NIXL's plugin GDS_MT";
}
