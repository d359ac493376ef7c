import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, statSync } from "node:fs";
import { cpus, release, totalmem } from "node:os";
import { join } from "node:path";
import { cacheFolder, fakesFolder, fetchNixl, peerFolder, programFolder, python, root } from "./paths.js";

/** The machine and the versions that a result belongs to. */
export interface Machine {
  readonly processor: string;
  readonly cores: number;
  readonly memoryBytes: number;
  readonly kernel: string;
  readonly fileSystem: string;
  readonly hugePages: string;
  readonly node: string;
  readonly product: string;
  /** Python and the peers, by package name. */
  readonly peers: Readonly<Record<string, string>>;
}

export function describeMachine(): Machine {
  return {
    processor: cpus()[0]?.model.trim() ?? "unknown processor",
    cores: cpus().length,
    memoryBytes: totalmem(),
    kernel: `Linux ${release().replace(/-.*$/, "")}`,
    fileSystem: fileSystemOf(cacheFolder),
    hugePages: /\[(\w+)\]/.exec(readOr("/sys/kernel/mm/transparent_hugepage/enabled", "[unknown]"))?.[1] ?? "unknown",
    node: process.versions.node,
    product: (JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { version: string }).version,
    peers: peerVersions(),
  };
}

/** Type of the file system, and the kind of device it lies on. */
function fileSystemOf(folder: string): string {
  const { stdout } = spawnSync("stat", ["--file-system", "--format", "%T", folder], { encoding: "utf8" });
  const { stdout: source } = spawnSync("df", ["--output=source", folder], { encoding: "utf8" });
  const type = stdout?.trim().replace("ext2/ext3", "ext4") || "unknown file system";
  const device = source?.trim().split("\n").at(-1)?.split("/").at(-1) ?? "";
  return device.startsWith("vd") ? `${type} on a virtual disk` : device.startsWith("nvme") ? `${type} on NVMe` : type;
}

function peerVersions(): Record<string, string> {
  if (!existsSync(python)) return {};
  const { status, stdout } = spawnSync(python, [join(peerFolder, "versions.py")], { encoding: "utf8" });
  return status === 0 ? (JSON.parse(stdout) as Record<string, string>) : {};
}

function readOr(file: string, otherwise: string): string {
  return existsSync(file) ? readFileSync(file, "utf8") : otherwise;
}

const programs = { "limit-warm": "warm.c", "limit-cold": "cold.c", machine: "machine.c" } as const;

/**
 * Fetches the real NIXL and builds the stand-ins for cuFile and CUDA under it; says why where that
 * cannot be.
 */
export function prepareNixl(): string | undefined {
  try {
    fetchNixl();
    execFileSync("sh", [join(root, "native/fakes/build.sh"), fakesFolder], { stdio: ["ignore", "inherit", "inherit"] });
    return undefined;
  } catch (error) {
    return `NIXL cannot be had: ${error instanceof Error ? error.message : String(error)}`;
  }
}

/**
 * Compiles the small C programs that prepare the machine and measure its limits, where they are
 * missing or older than their source.
 */
export function buildPrograms(): void {
  mkdirSync(programFolder, { recursive: true });
  const source = (file: string) => join(root, "bench/limits", file);
  for (const [program, file] of Object.entries(programs)) {
    const target = join(programFolder, program);
    const newest = Math.max(statSync(source(file)).mtimeMs, statSync(source("common.h")).mtimeMs);
    if (existsSync(target) && statSync(target).mtimeMs >= newest) continue;
    execFileSync("cc", ["-O2", "-Wall", "-Wextra", "-pthread", source(file), "-o", target], { stdio: ["ignore", "inherit", "inherit"] });
  }
}
