import { readdirSync } from "node:fs";
import { readdir, stat, statfs } from "node:fs/promises";
import { cpus, release } from "node:os";
import { join } from "node:path";
import { addonPath } from "../native/addon-path.js";
import type { Addon } from "../native/load.js";
import { addon } from "../native/load.js";
import { readKernelConfig } from "./kernel-config.js";
import { type ReadText, readText } from "./read-text.js";

/** Everything that the probe asks of the machine; tests put their own in its place. */
export interface Machine {
  readonly read: ReadText;
  /** Names in a folder; undefined where it cannot be read. */
  list(folder: string): readonly string[] | undefined;
  /** What the running kernel was built with; undefined where nothing tells. */
  kernelConfig(): Promise<string | undefined>;
  /** Throws where the addon cannot be loaded. */
  addon(): Pick<Addon, "version" | "pageBytes" | "availableParallelism" | "ioSupport">;
  addonPath(): string;
  kernelRelease(): string;
  processors(): number;
  /** Magic number of the file system that a path lies on. Rejects where the path is not there. */
  fileSystemType(path: string): Promise<number>;
  /**
   * The path itself when it is a regular file; of a folder one in it, weights first; undefined
   * where there is none.
   */
  fileAt(path: string): Promise<string | undefined>;
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
  fileSystemType: async (path) => (await statfs(path)).type,
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

async function fileAt(path: string): Promise<string | undefined> {
  const found = await stat(path);
  // Opening a pipe or a device could block.
  if (!found.isDirectory()) return found.isFile() ? path : undefined;
  const names = (await readdir(path)).sort((a, b) => Number(b.endsWith(".safetensors")) - Number(a.endsWith(".safetensors")));
  for (const name of names) {
    const file = await stat(join(path, name)).catch(() => undefined);
    if (file?.isFile()) return join(path, name);
  }
  return undefined;
}
