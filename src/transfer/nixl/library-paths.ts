import { existsSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { promisify } from "node:util";

/** A place where NIXL's library may lie, and why it is looked for there. */
export interface LibraryPlace {
  readonly path: string;
  readonly from: string;
}

const libraryName = "libnixl_capi.so";
const [loader, usual, python] = ["the loader's path", "NVIDIA's usual places", "the site-packages of python3"] as const;
/** Places that are told by their kind where nothing lies there. */
const places: ReadonlyMap<string, string> = new Map([
  [loader, `on ${loader}`],
  [usual, `in ${usual}`],
]);
/** Whether the loader says that there is no such file. */
export const isAbsent = (why: string) => /cannot open shared object file: No such file/.test(why);
const machine = process.arch === "arm64" ? "aarch64-linux-gnu" : "x86_64-linux-gnu";
/** A place that was tried in vain. */
export interface LibraryTried extends LibraryPlace {
  readonly why: string;
}

/** Where NVIDIA's containers and NIXL's own build put it. */
const usualPrefixes = ["/opt/nvidia/nvda_nixl", "/usr/local/nixl", "/usr/local", "/usr"];
/** How long `python3` may take to name its folders. */
const pythonTimeoutMs = 10_000;

/** The loader's own search, which sees LD_LIBRARY_PATH, then NVIDIA's usual places. */
export function usualPlaces(): LibraryPlace[] {
  const folders = usualPrefixes.flatMap((prefix) => [`${prefix}/lib/${machine}`, `${prefix}/lib64`, `${prefix}/lib`]);
  return [{ path: libraryName, from: loader }, ...folders.map((folder) => ({ path: join(folder, libraryName), from: usual }))];
}

/**
 * The wheels `nixl-cu12` and `nixl-cu13` in the site-packages of the `python3` on PATH, or why
 * there are none.
 */
export async function pythonPlaces(): Promise<LibraryPlace[] | LibraryTried> {
  const script = "import json, site, sys; print(json.dumps([p for p in sys.path if 'packages' in p] + site.getsitepackages()))";
  const { execFile } = await import("node:child_process");
  let folders: string[];
  try {
    const { stdout } = await promisify(execFile)("python3", ["-c", script], { timeout: pythonTimeoutMs });
    folders = JSON.parse(stdout) as string[];
  } catch (thrown) {
    const [reason] = thrown instanceof Error ? thrown.message.split("\n") : [String(thrown)];
    return { path: libraryName, from: python, why: `python3 cannot be asked: ${reason}` };
  }
  const wheels = [...new Set(folders)].filter(existsSync).flatMap((folder) =>
    readdirSync(folder)
      .filter((name) => /^\.nixl(_cu\d+)?\.mesonpy\.libs$/.test(name))
      .sort()
      .map((name) => ({ path: join(folder, name, libraryName), from: python })),
  );
  if (wheels.length > 0) return wheels;
  return { path: libraryName, from: python, why: `no NIXL in ${[...new Set(folders)].join(", ") || python}` };
}

/**
 * Why there is no library, in one line: a dozen places where nothing lies are one reason, a library
 * that is there and refused is one of its own.
 */
export function whyNowhere(tried: readonly LibraryTried[]): string {
  const isEmpty = ({ why, from }: LibraryTried) => isAbsent(why) && places.has(from);
  const empty = new Set(tried.filter(isEmpty).map(({ from }) => places.get(from)));
  const nowhere = empty.size === 0 ? [] : [`no ${libraryName} ${[...empty].join(" or ")}`];
  const refused = tried
    .filter((place) => !isEmpty(place))
    .map(({ path, from, why }) => (from === python ? why : `${path} (${from}): ${why.replace(`${path}: `, "")}`));
  return [...nowhere, ...refused].join("; ");
}

/**
 * NIXL's version by the package around its library, which has no call to tell it: undefined where
 * nothing says.
 */
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
