import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { cacheFolder, root } from "./folders.js";

/**
 * The stand-ins for NVIDIA's libraries (native/fakes, described in docs/fault-injection.md):
 * building them, running a child over them, and reading what it left open. A child runs them by
 * {@link fakesEnv}; this process never loads them.
 */

const sources = join(root, "native/fakes");

/**
 * Folder with libcuda.so.1, libcudart.so.12, libcufile.so.0 and nixl/libnixl_capi.so. Built with
 * `cc` once for the contents of the sources.
 */
export function fakesFolder(): string {
  return built("stand-ins", (folder) => ["sh", [join(sources, "build.sh"), folder]]);
}

/**
 * A C program that checks a stand-in by itself; run it with the environment of {@link fakesEnv} and
 * a scenario's name.
 */
export function fakesProgram(name: "cuda" | "cudart" | "cufile" | "nixl"): string {
  const libraries = fakesFolder();
  const links = ["libcuda.so.1", "libcudart.so.12", "libcufile.so.0"].map((file) => `-l:${file}`);
  const flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", `-L${libraries}`, `-Wl,-rpath-link,${libraries}`, "-Wl,--as-needed"];
  const folder = built(`program-${name}`, (into) => [
    "cc",
    [...flags, "-o", join(into, name), join(sources, `selftest/${name}.c`), ...links, "-ldl"],
  ]);
  return join(folder, name);
}

function built(what: string, command: (folder: string) => [string, string[]]): string {
  const key = createHash("sha256");
  for (const file of readdirSync(sources, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .sort())
    key.update(file).update(readFileSync(file));
  const folder = join(cacheFolder(), "fakes", `${what}-${key.digest("hex").slice(0, 16)}`);
  if (existsSync(folder)) return folder;
  const partial = `${folder}.${process.pid}`;
  mkdirSync(partial, { recursive: true });
  const [program, args] = command(partial);
  const { status, stderr, error } = spawnSync(program, args, { encoding: "utf8" });
  if (status !== 0) throw new Error(`building ${what} failed: ${error?.message ?? stderr}`);
  try {
    renameSync(partial, folder);
  } catch (cause) {
    // Another test file was faster.
    if (!existsSync(folder)) throw cause;
    rmSync(partial, { recursive: true, force: true });
  }
  return folder;
}

export interface FakesOptions {
  /** Settings and faults in the words of docs/fault-injection.md, joined by semicolons. */
  readonly plan?: string | readonly string[];
  /** A file for {@link readLedger}. Several processes may share it. */
  readonly ledger?: string;
  /** The real libnixl_capi.so; then `MX_NIXL_LIBRARY` names the forwarding one in front of it. */
  readonly nixl?: string;
}

/**
 * The environment of a child whose CUDA, cuFile and (where `nixl` is given) NIXL are the stand-ins.
 */
export function fakesEnv(options: FakesOptions = {}): Record<string, string> {
  const folder = fakesFolder();
  const plan = typeof options.plan === "string" ? options.plan : (options.plan ?? []).join(";");
  return {
    LD_LIBRARY_PATH: folder,
    MX_FAKES: plan,
    ...(options.ledger === undefined ? {} : { MX_FAKES_LEDGER: options.ledger }),
    ...(options.nixl === undefined ? {} : { MX_FAKES_NIXL_LIBRARY: options.nixl, MX_NIXL_LIBRARY: join(folder, "nixl/libnixl_capi.so") }),
  };
}

/**
 * Source for a child over the stand-ins: `atFault(then)` calls `then` once the ledger tells of a
 * fault that took effect. What is aborted at that moment, rather than after a time, is the same
 * work on every machine.
 */
export const atFault = `
import { readFileSync as readNow } from "node:fs";
function atFault(then) {
  const timer = setInterval(() => {
    let told = "";
    try {
      told = readNow(process.env.MX_FAKES_LEDGER, "utf8");
    } catch {
      // Nothing was called yet.
    }
    if (!told.includes('"fault"')) return;
    clearInterval(timer);
    then();
  }, 5);
  timer.unref();
}
`;

/** What can be open. */
export type LedgerKind =
  | "reservation"
  | "handle"
  | "mapping"
  | "allocation"
  | "pinned"
  | "host-registration"
  | "context"
  | "stream"
  | "event"
  | "copy"
  | "cufile-driver"
  | "cufile-file"
  | "cufile-buffer"
  | "cufile-io"
  | "nixl-agent"
  | "nixl-backend"
  | "nixl-parameters"
  | "nixl-options"
  | "nixl-list"
  | "nixl-registration"
  | "nixl-request"
  | "nixl-transfer";

export interface LedgerCall {
  readonly name: string;
  /**
   * Which call of this function it was in its process, from 1. A poll that heard the same as before
   * has no line.
   */
  readonly n: number;
  readonly status: number;
  readonly facts: string;
  readonly thread: number;
  readonly pid: number;
}

export interface OpenThing {
  readonly kind: LedgerKind;
  readonly id: string;
  readonly bytes: number;
}

export interface Ledger {
  /** Files of the stand-ins that were loaded. A real driver leaves no line. */
  readonly loaded: readonly string[];
  /** In the order in which they ended. */
  readonly calls: readonly LedgerCall[];
  /** How often each function was called. */
  readonly counts: Readonly<Record<string, number>>;
  /** Faults that took effect. A run without any has tested nothing. */
  readonly faults: readonly { readonly name: string; readonly n: number; readonly action: string }[];
  /** What was opened and never closed, oldest first. */
  readonly open: readonly OpenThing[];
  /** The most that was open at one time, in things and bytes, by kind. */
  readonly peak: Readonly<Record<string, { readonly things: number; readonly bytes: number }>>;
  /** Things opened and closed, in order. */
  readonly events: readonly (OpenThing & { readonly what: "opened" | "closed" })[];
  /** Bytes by path: direct, compat, bounce. */
  readonly amounts: Readonly<Record<string, number>>;
  /** Why a process was killed for what the real library would have answered with corruption. */
  readonly killed: string | undefined;
  /** Whether the last process to write ended by exit rather than `_exit` or a signal. */
  readonly ended: boolean;
}

/** A line of the file; which of the optional words it has says what it tells. */
interface Line {
  readonly pid: number;
  readonly thread: number;
  readonly call?: string;
  readonly fault?: string;
  readonly opened?: LedgerKind;
  readonly closed?: LedgerKind;
  readonly count?: string;
  readonly killed?: string;
  readonly loaded?: string;
  readonly n?: number;
  readonly status?: number;
  readonly facts?: string;
  readonly action?: string;
  readonly id?: string;
  readonly bytes?: number;
  readonly amount?: number;
}

export function readLedger(file: string): Ledger {
  const loaded: string[] = [];
  const calls: LedgerCall[] = [];
  const counts: Record<string, number> = {};
  const faults: { name: string; n: number; action: string }[] = [];
  const events: (OpenThing & { what: "opened" | "closed" })[] = [];
  const open = new Map<string, OpenThing>();
  const now: Record<string, { things: number; bytes: number }> = {};
  const peak: Record<string, { things: number; bytes: number }> = {};
  const amounts: Record<string, number> = {};
  let killed: string | undefined;
  let ended = false;
  const text = existsSync(file) ? readFileSync(file, "utf8") : "";
  for (const line of text.split("\n").filter((line) => line !== "")) {
    const entry = JSON.parse(line) as Line;
    const { pid, thread, n = 0, status = 0, facts = "", id = "", bytes = 0 } = entry;
    ended = false;
    if (entry.loaded !== undefined) {
      loaded.push(entry.loaded);
    } else if (entry.call !== undefined) {
      calls.push({ name: entry.call, n, status, facts, thread, pid });
      counts[entry.call] = Math.max(counts[entry.call] ?? 0, n);
    } else if (entry.fault !== undefined) {
      faults.push({ name: entry.fault, n, action: entry.action ?? "" });
    } else if (entry.opened !== undefined) {
      const thing = { kind: entry.opened, id, bytes };
      open.set(`${pid} ${thing.kind} ${thing.id}`, thing);
      events.push({ ...thing, what: "opened" });
      const sum = now[thing.kind] ?? { things: 0, bytes: 0 };
      now[thing.kind] = sum;
      sum.things += 1;
      sum.bytes += bytes;
      const most = peak[thing.kind] ?? { things: 0, bytes: 0 };
      peak[thing.kind] = { things: Math.max(most.things, sum.things), bytes: Math.max(most.bytes, sum.bytes) };
    } else if (entry.closed !== undefined) {
      const key = `${pid} ${entry.closed} ${id}`;
      const thing = open.get(key);
      if (thing === undefined) throw new Error(`the ledger closes what was not open: ${line}`);
      open.delete(key);
      events.push({ ...thing, what: "closed" });
      const sum = now[thing.kind];
      if (sum !== undefined) {
        sum.things -= 1;
        sum.bytes -= thing.bytes;
      }
    } else if (entry.count !== undefined) {
      amounts[entry.count] = (amounts[entry.count] ?? 0) + (entry.amount ?? 0);
    } else if (entry.killed !== undefined) {
      killed = entry.killed;
    } else {
      ended = true;
    }
  }
  return { loaded, calls, counts, faults, open: [...open.values()], peak, events, amounts, killed, ended };
}
