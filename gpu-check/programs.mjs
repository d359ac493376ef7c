// The C programs of the check: beside it in a bundle, else compiled by `cc` where they are first
// wanted.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const sources = fileURLToPath(new URL("programs/", import.meta.url));
const flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread"];
/**
 * Programs by name: source, and flags of its own. The last is loaded by Node, to call the addon
 * from threads of C.
 */
const known = {
  memory: { source: "memory.c" },
  bus: { source: "bus.c" },
  cufile: { source: "cufile.c" },
  "c-caller.node": { source: "../../test/support/c-caller.c", flags: ["-shared", "-fPIC"] },
};

/** Names of all programs. */
export const programNames = Object.keys(known);

/**
 * Path of a program, compiled into `folder` unless a bundle brought it. Throws where there is no C
 * compiler.
 */
export function programPath(name, folder) {
  const bundled = join(sources, "built", name);
  if (existsSync(bundled)) return bundled;
  return compile(name, join(folder, "programs"));
}

/** Compiles a program into a folder; its path. */
export function compile(name, folder) {
  mkdirSync(folder, { recursive: true });
  const path = join(folder, name);
  const { source, flags: own = [] } = known[name];
  const { status, stderr, error } = spawnSync("cc", [...flags, ...own, "-o", path, join(sources, source), "-ldl"], { encoding: "utf8" });
  if (status !== 0) throw new Error(`the program ${name} cannot be compiled by cc: ${error?.message ?? stderr.trim()}`);
  return path;
}
