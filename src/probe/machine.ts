import { readdirSync, statfsSync, statSync } from "node:fs";
import { cpus, release } from "node:os";
import { join } from "node:path";
import type { Addon } from "../native/addon.js";
import { addon, addonPath } from "../native/load.js";
import { readKernelConfig } from "./kernel-config.js";
import { type ReadText, readText } from "./read-text.js";

/** Everything that the probe asks of the machine; tests put their own in its place. */
export interface Machine {
  readonly read: ReadText;
  /** Names in a folder; undefined where it cannot be read. */
  list(folder: string): readonly string[] | undefined;
  /** What the running kernel was built with; undefined where nothing tells. */
  kernelConfig(): string | undefined;
  /** Throws where the addon cannot be loaded. */
  addon(): Pick<Addon, "version" | "pageBytes" | "availableParallelism" | "ioSupport">;
  addonPath(): string;
  kernelRelease(): string;
  processors(): number;
  /** Magic number of the file system that a path lies on. Throws where the path is not there. */
  fileSystemType(path: string): number;
  /** The path itself when it is a regular file; of a folder one in it, weights first; undefined where there is none. */
  fileAt(path: string): string | undefined;
  readonly environment: NodeJS.ProcessEnv;
  readonly nodeVersion: string;
}

export const thisMachine: Machine = {
  read: readText,
  list,
  kernelConfig: () => readKernelConfig(release()),
  addon,
  addonPath,
  kernelRelease: release,
  processors: () => cpus().length,
  fileSystemType: (path) => statfsSync(path).type,
  fileAt,
  environment: process.env,
  nodeVersion: process.version,
};

function list(folder: string): readonly string[] | undefined {
  try {
    return readdirSync(folder);
  } catch {
    return undefined;
  }
}

function fileAt(path: string): string | undefined {
  const stat = statSync(path);
  // Opening a pipe or a device could block.
  if (!stat.isDirectory()) return stat.isFile() ? path : undefined;
  const names = readdirSync(path).sort((a, b) => Number(b.endsWith(".safetensors")) - Number(a.endsWith(".safetensors")));
  for (const name of names) {
    const file = statSync(join(path, name), { throwIfNoEntry: false });
    if (file?.isFile()) return join(path, name);
  }
  return undefined;
}
