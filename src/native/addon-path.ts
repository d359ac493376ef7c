import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { readEnv } from "../envs.js";

const packageName = "modelexpress-client";

/**
 * File of the module that has this `import.meta.url`, or of the bundle that it was put into: a
 * CommonJS bundle has no such URL.
 */
export function fileOf(url: string | undefined): string {
  return url === undefined ? __filename : fileURLToPath(url);
}

const ownFile = fileOf(import.meta.url);

/**
 * System, processor and, on Linux, C library, as the names of addons and of their packages have it:
 * `linux-x64-gnu`.
 */
export function platformName(): string {
  const name = `${process.platform}-${process.arch}`;
  return process.platform === "linux" ? `${name}-${runsOnMusl() ? "musl" : "gnu"}` : name;
}

function runsOnMusl(): boolean {
  try {
    // By either of its two names, whichever of them is the link; glibc's is libc.so.6.
    return /\/(ld-musl-[^/\n]*|libc\.so)$/m.test(readFileSync("/proc/self/maps", "latin1"));
  } catch {
    return false;
  }
}

/** Package that brings the addon built for a platform. */
export function platformPackage(platform: string): string {
  return `${packageName}-${platform}`;
}

/**
 * Where the addon lies: where MX_NATIVE_ADDON says, else beside this code, else in the package for
 * this platform. Where it is in none of them, the place beside this code.
 */
export function addonPath(): string {
  const named = readEnv("MX_NATIVE_ADDON");
  if (named !== undefined) return resolve(named);
  const platform = platformName();
  const folder = dirname(ownFile);
  const beside = join(folder, `modelexpress.${platform}.node`);
  if (existsSync(beside)) return beside;
  // The modules one by one, of a clone: the addon is beside the packed code.
  const built = join(folder, "../../lib", basename(beside));
  if (basename(folder) === "native" && existsSync(built)) return built;
  try {
    return createRequire(ownFile).resolve(platformPackage(platform));
  } catch {
    return beside;
  }
}

/** The bundle that this code was put into; undefined where it lies in its own package. */
export function bundleFile(): string | undefined {
  const manifests = ["..", "../.."].map((up) => join(dirname(ownFile), up, "package.json"));
  return manifests.some((manifest) => nameIn(manifest) === packageName) ? undefined : ownFile;
}

function nameIn(manifest: string): unknown {
  try {
    return (JSON.parse(readFileSync(manifest, "utf8")) as { name?: unknown }).name;
  } catch {
    return undefined;
  }
}
