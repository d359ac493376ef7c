// What the steps share. The product is the build beside this folder, in a clone as in a bundle.
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** A step that cannot be made here. */
export class Skip extends Error {}

export const product = () => import("../dist/index.js");

/** Remembers a resource that is closed, last first, when the step ends. */
export function open(opened, resource) {
  opened.push(resource);
  return resource;
}

export function checkpointFolder({ folder }) {
  return join(folder, "checkpoint");
}

export function checkpointFiles(options) {
  const path = checkpointFolder(options);
  return readdirSync(path)
    .filter((name) => name.endsWith(".safetensors"))
    .map((name) => join(path, name));
}

/** SHA-256 of each tensor as the step `host` found it. */
export function expectedDigests({ folder }) {
  return new Map(JSON.parse(readFileSync(join(folder, "digests.json"), "utf8")));
}

export function keepDigests({ folder }, digests) {
  writeFileSync(join(folder, "digests.json"), JSON.stringify([...digests]));
}

export function requireSame(expected, digests) {
  for (const [name, digest] of expected) if (digests.get(name) !== digest) throw new Error(`tensor ${name} differs from the file`);
  if (digests.size !== expected.size) throw new Error(`${digests.size} tensors instead of ${expected.size}`);
}

/**
 * Writes files back and drops them from the page cache. False where there is no `dd` to do it: the
 * reports then say what was cached.
 */
export function evict(files) {
  return files.every((file) => spawnSync("dd", [`if=${file}`, "iflag=nocache", "count=0", "status=none"]).status === 0);
}

/** Skips the step where NIXL cannot be loaded, with the reason. */
export async function requireNixl() {
  const { loadNixl } = await product();
  try {
    await loadNixl();
  } catch (error) {
    throw new Skip(error.message);
  }
}

export function toldOf({ bytes, times, shards: [{ used, reason }], nixl }) {
  const gigabytesPerSecond = Number((bytes / times.transferMs / 1e6).toFixed(2));
  return { gigabytesPerSecond, allocateMs: times.allocateMs, transferMs: times.transferMs, used, reason, nixl };
}

export function hex(bytes) {
  return createHash("sha256").update(bytes).digest("hex");
}

/** Text of a file of the kernel; undefined where there is none. */
export function textOf(path) {
  try {
    return existsSync(path) ? readFileSync(path, "utf8").trim() : undefined;
  } catch {
    return undefined;
  }
}

/** Libraries of NVIDIA's and NIXL's that this process has loaded. */
export function loadedLibraries() {
  const maps = readFileSync("/proc/self/maps", "utf8");
  return [...new Set(maps.match(/\/\S*\/lib(?:cuda|cudart|cufile|nixl|nixl_capi|ucp|mx_fakes)\b[^/\s]*$/gm))];
}
