import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

/** Root of the clone: the nearest folder above this file that has the package's lock file. */
export const root = ((): string => {
  let folder = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(folder, "package-lock.json"))) {
    if (dirname(folder) === folder) throw new Error("the bench runs in a clone of the repository");
    folder = dirname(folder);
  }
  return folder;
})();

export const cacheFolder = join(root, ".cache/bench");
export const checkpointFolder = join(cacheFolder, "checkpoints");
export const programFolder = join(cacheFolder, "bin");
/** The compiled bench, this file among it. */
export const scriptFolder = dirname(fileURLToPath(import.meta.url));
export const peerFolder = join(root, "bench/peers");
export const venvFolder = join(root, ".cache/bench-venv");
export const python = join(venvFolder, "bin/python");
/** Stand-ins for the CUDA libraries and cuFile. */
export const fakesFolder = join(cacheFolder, "fakes");
export const resultsFile = join(cacheFolder, "results.json");

/** Imports a built module of the product, given as its path under `dist`. */
export function importBuilt<Module>(path: string): Promise<Module> {
  return import(pathToFileURL(join(root, "dist", path)).href) as Promise<Module>;
}

/** Where the real NIXL is, once `node scripts/nixl.mjs` has fetched it. */
export const { nixlLibrary, fetchNixl } = (await import(
  pathToFileURL(join(root, "scripts/nixl.mjs")).href
)) as typeof import("../scripts/nixl.mjs");
