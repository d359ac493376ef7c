import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** What a trial process is told, as JSON in its first argument. */
export interface TrialJob {
  readonly path: string;
  readonly files: readonly string[];
  readonly prepare: readonly string[];
  readonly compare: boolean;
  readonly settings: {
    readonly driver?: "pread" | "io_uring" | "map" | "nixl";
    readonly plugin?: string;
    readonly threads?: number;
    readonly touch?: boolean;
    readonly repeats?: number;
    readonly spawns?: number;
    readonly keepPages?: boolean;
    readonly way?: "arena" | "list" | "each";
  };
}

export function readJob(): TrialJob {
  return JSON.parse(process.argv[2] ?? "") as TrialJob;
}

/**
 * Runs the command that primes memory and warms or drops the files, in a child, right before the
 * timing.
 */
export function prepareMachine({ prepare: [command, ...args] }: TrialJob): void {
  if (command === undefined) return;
  const { status, stdout, stderr } = spawnSync(command, args, { encoding: "utf8" });
  if (status !== 0) throw new Error(`the machine could not be prepared: ${stdout}${stderr}`);
}

/** Greatest resident memory of this process so far, in bytes. */
export function peakBytes(): number {
  const kilobytes = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1];
  return Number(kilobytes) * 1024;
}

/** Ends a trial: its figures, all numbers, as the last line of stdout. */
export function printFigures(figures: Readonly<Record<string, number>>): void {
  process.stdout.write(`${JSON.stringify(figures)}\n`);
}

/**
 * Loads a file with one small tensor: V8 compiles functions at their first call, where Python
 * compiles them with the import. Every system here does the same before its trial.
 */
export async function firstCall(load: (path: string) => Promise<void>): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "mx-first-"));
  try {
    const header = Buffer.from(JSON.stringify({ t: { dtype: "F32", shape: [1024], data_offsets: [0, 4096] } }).padEnd(64));
    const length = Buffer.alloc(8);
    length.writeBigUInt64LE(BigInt(header.length));
    const path = join(folder, "first.safetensors");
    writeFileSync(path, Buffer.concat([length, header, Buffer.alloc(4096)]));
    await load(path);
  } finally {
    rmSync(folder, { recursive: true });
  }
}
