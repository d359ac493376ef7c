import { readFileSync } from "node:fs";
import { readText } from "./read-text.js";

/**
 * The configuration that the running kernel was built with; undefined where neither the boot folder
 * nor the kernel itself shows it.
 */
export async function readKernelConfig(release: string): Promise<string | undefined> {
  return readText(`/boot/config-${release}`) ?? readText(`/lib/modules/${release}/config`) ?? (await packedConfig());
}

async function packedConfig(): Promise<string | undefined> {
  try {
    const { gunzipSync } = await import("node:zlib");
    return gunzipSync(readFileSync("/proc/config.gz")).toString();
  } catch {
    // Built without CONFIG_IKCONFIG_PROC.
    return undefined;
  }
}
