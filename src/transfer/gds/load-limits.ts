import { readSetEnv } from "../../envs.js";

/** Shortest chunk of a load. */
const minChunkBytes = 4096;

/** What the variables MX_GDS_* ask of a load's reads by GDS_MT; undefined where one is not set. */
export interface GdsLimits {
  readonly threads?: number | undefined;
  readonly maxChunkBytes?: number | undefined;
  /** Deadline of each window, in milliseconds. */
  readonly timeoutMs?: number | undefined;
}

/** Reads the variables. @throws ERR_ENV_INVALID */
export function gdsLimits(): GdsLimits {
  const chunkKib = readSetEnv("MX_GDS_MAX_CHUNK_KB");
  return {
    threads: readSetEnv("MX_GDS_THREADS"),
    maxChunkBytes: chunkKib === undefined ? undefined : Math.max(minChunkBytes, chunkKib * 1024),
    timeoutMs: readSetEnv("MX_GDS_TIMEOUT"),
  };
}

/** Whether a load may read by GDS_MT. */
export function readsByGds(driver: string, plugin: string | undefined, device: string): boolean {
  if (driver === "auto") return device !== "host";
  return driver === "nixl" && (plugin ?? (device === "host" ? "POSIX" : "GDS_MT")) === "GDS_MT";
}
