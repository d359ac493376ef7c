import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import { readText } from "./read-text.js";

/** The configuration that the running kernel was built with; undefined where neither the boot folder nor the kernel itself shows it. */
export function readKernelConfig(release: string): string | undefined {
  return readText(`/boot/config-${release}`) ?? readText(`/lib/modules/${release}/config`) ?? packedConfig();
}

function packedConfig(): string | undefined {
  try {
    return gunzipSync(readFileSync("/proc/config.gz")).toString();
  } catch {
    // Built without CONFIG_IKCONFIG_PROC.
    return undefined;
  }
}
