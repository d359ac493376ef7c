// Fetches the real NIXL (PyPI, without its Python dependencies) into .cache/nixl, for tests and CI,
// and prints where its library lies. Does nothing when it is there already. Needs python3 with pip;
// nothing of Python is needed at run time.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { isMain } from "./process.mjs";

const project = "nixl-cu12";
const version = "1.5.1";
/** For the download of a hundred megabytes. */
const patienceMs = 300_000;
const folder = fileURLToPath(new URL(`../.cache/nixl/${version}/`, import.meta.url));

/** Where the fetched library lies, or will lie. */
export const nixlLibrary = join(folder, ".nixl_cu12.mesonpy.libs", "libnixl_capi.so");

/** Fetches unless it is there; returns the library's path. */
export function fetchNixl() {
  if (existsSync(nixlLibrary)) return nixlLibrary;
  const parent = join(folder, "..");
  mkdirSync(parent, { recursive: true });
  const partial = mkdtempSync(join(parent, "partial-"));
  try {
    run("-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--dest", partial, `${project}==${version}`);
    const wheel = readdirSync(partial).find((name) => name.endsWith(".whl"));
    if (wheel === undefined) throw new Error(`pip downloaded no wheel of ${project} ${version}`);
    const unpacked = join(partial, "unpacked");
    run("-m", "zipfile", "-e", join(partial, wheel), unpacked);
    // The libraries and what names their version; headers and Python modules are not needed.
    for (const name of readdirSync(unpacked)) {
      if (!/\.libs$|\.dist-info$/.test(name)) rmSync(join(unpacked, name), { recursive: true });
    }
    rmSync(folder, { recursive: true, force: true });
    renameSync(unpacked, folder);
  } finally {
    rmSync(partial, { recursive: true, force: true });
  }
  return nixlLibrary;
}

function run(...args) {
  const { status, stderr, error } = spawnSync("python3", args, { encoding: "utf8", timeout: patienceMs });
  if (status !== 0) throw new Error(`python3 ${args.slice(0, 2).join(" ")} failed: ${error?.message ?? stderr.trim()}`);
}

if (isMain(import.meta.url)) console.log(fetchNixl());
