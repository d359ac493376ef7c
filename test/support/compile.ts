import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, renameSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { cacheFolder } from "./folders.js";

/**
 * Compiles a C file beside this one with `cc`, once for its contents, and returns the path of what
 * came out.
 */
export function compile(source: string, flags: readonly string[]): string {
  const path = fileURLToPath(new URL(source, import.meta.url));
  const key = createHash("sha256").update(readFileSync(path)).update(flags.join("\0")).digest("hex").slice(0, 16);
  const folder = join(cacheFolder(), "compiled");
  const output = join(folder, `${source}-${key}`);
  if (existsSync(output)) return output;
  mkdirSync(folder, { recursive: true });
  const partial = `${output}.${process.pid}`;
  const { status, stderr, error } = spawnSync("cc", ["-O1", "-Wall", "-Wextra", "-Werror", ...flags, "-o", partial, path], {
    encoding: "utf8",
  });
  if (status !== 0) throw new Error(`cc ${source}: ${error?.message ?? stderr}`);
  renameSync(partial, output);
  return output;
}
