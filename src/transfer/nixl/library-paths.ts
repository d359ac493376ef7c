import { execFile } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { promisify } from "node:util";

/** A place where NIXL's library may lie, and why it is looked for there. */
export interface LibraryPlace {
  readonly path: string;
  readonly from: string;
}

const libraryName = "libnixl_capi.so";
const machine = process.arch === "arm64" ? "aarch64-linux-gnu" : "x86_64-linux-gnu";
/** Where NVIDIA's containers and NIXL's own build put it. */
const usualPrefixes = ["/opt/nvidia/nvda_nixl", "/usr/local/nixl", "/usr/local", "/usr"];
/** How long `python3` may take to name its folders. */
const pythonTimeoutMs = 10_000;

/** The loader's own search, which sees LD_LIBRARY_PATH, then NVIDIA's usual places. */
export function usualPlaces(): LibraryPlace[] {
  const folders = usualPrefixes.flatMap((prefix) => [`${prefix}/lib/${machine}`, `${prefix}/lib64`, `${prefix}/lib`]);
  return [
    { path: libraryName, from: "the loader's path" },
    ...folders.map((folder) => ({ path: join(folder, libraryName), from: "NVIDIA's usual places" })),
  ];
}

/** The wheels `nixl-cu12` and `nixl-cu13` in the site-packages of the `python3` on PATH; the first entry tells what went wrong with python3. */
export async function pythonPlaces(): Promise<LibraryPlace[] | string> {
  const script = "import json, site, sys; print(json.dumps([p for p in sys.path if 'packages' in p] + site.getsitepackages()))";
  let folders: string[];
  try {
    const { stdout } = await promisify(execFile)("python3", ["-c", script], { timeout: pythonTimeoutMs });
    folders = JSON.parse(stdout) as string[];
  } catch (thrown) {
    return `python3 cannot be asked: ${thrown instanceof Error ? (thrown.message.split("\n")[0] ?? "") : String(thrown)}`;
  }
  const wheels = [...new Set(folders)].filter(existsSync).flatMap((folder) =>
    readdirSync(folder)
      .filter((name) => /^\.nixl(_cu\d+)?\.mesonpy\.libs$/.test(name))
      .sort()
      .map((name) => ({ path: join(folder, name, libraryName), from: "the site-packages of python3" })),
  );
  return wheels.length > 0 ? wheels : `no NIXL in ${[...new Set(folders)].join(", ")}`;
}

/** NIXL's version by the package around its library, which has no call to tell it: undefined where nothing says. */
export function libraryVersion(path: string): string | undefined {
  const folder = dirname(dirname(path));
  try {
    for (const name of readdirSync(folder)) {
      const version = /^nixl(?:_cu\d+)?-(.+)\.dist-info$/.exec(name)?.[1];
      if (version !== undefined) return version;
    }
  } catch {
    // Not installed by pip.
  }
  return undefined;
}
