import { join } from "node:path";
import { fakesFolder, nixlLibrary, peerFolder, programFolder, python, root, scriptFolder } from "./paths.js";

/**
 * How a system is started: a Node script (of the compiled bench, or as it stands in the clone), a
 * Python script of a peer, a program of ours in C, a Rust example.
 */
type Start =
  | { readonly node: string; readonly env?: Readonly<Record<string, string>> }
  | { readonly script: string }
  | { readonly example: string }
  | { readonly python: string; readonly env?: Readonly<Record<string, string>>; readonly needs: readonly string[] }
  | { readonly program: string };

export type System = Start & {
  readonly title: string;
  /** What the figures of this system stand for in a comparison. */
  readonly role: "own" | "peer" | "limit" | "reference";
  readonly settings?: Readonly<Record<string, unknown>>;
};

/**
 * glibc then asks for huge pages for what it maps, so that peers that take memory from malloc have
 * them too.
 */
const hugePages = { GLIBC_TUNABLES: "glibc.malloc.hugetlb=1" };
const torch = ["safetensors", "torch"];
const load = "trials/load.js";
/** Bytes of one descriptor. */
const nixlBlock = 2 * 2 ** 20;

const nixl = { MX_NIXL_LIBRARY: nixlLibrary, NIXL_LOG_LEVEL: "FATAL", UCX_LOG_LEVEL: "error" };
const register = "trials/registration.js";

/** Every system that a row can name. Peers stand in the configuration that was fastest for them. */
export const systems = {
  mx: { title: "modelexpress-client", role: "own", node: load },
  "mx-pread": { title: "modelexpress-client, driver pread", role: "reference", node: load, settings: { driver: "pread" } },
  "mx-io_uring": { title: "modelexpress-client, driver io_uring", role: "reference", node: load, settings: { driver: "io_uring" } },
  "mx-map": { title: "modelexpress-client, driver map (lazy)", role: "own", node: load, settings: { driver: "map", touch: true } },
  "mx-open": { title: "modelexpress-client openCheckpoint", role: "own", node: "trials/open.js", settings: { repeats: 40 } },
  "mx-event-loop": { title: "modelexpress-client, event loop", role: "own", node: "trials/event-loop.js" },
  "mx-alone": { title: "modelexpress-client, no process started", role: "own", node: "trials/spawns.js" },
  "mx-spawns": { title: "modelexpress-client, 50 processes started", role: "own", node: "trials/spawns.js", settings: { spawns: 50 } },
  "mx-again": { title: "modelexpress-client, loaded again", role: "reference", node: "trials/again.js" },
  "mx-again-kept": {
    title: "modelexpress-client, loaded again with keepPages",
    role: "own",
    node: "trials/again.js",
    settings: { keepPages: true },
  },
  "mx-gds": {
    title: "modelexpress-client, NIXL GDS_MT over a stand-in for cuFile, 2 threads, 8 MiB",
    role: "own",
    node: load,
    settings: { driver: "nixl", plugin: "GDS_MT", threads: 2 },
    env: { ...nixl, LD_LIBRARY_PATH: fakesFolder },
  },
  "register-arena": { title: "the arena, one registration", role: "own", node: register, settings: { way: "arena" }, env: nixl },
  "register-list": { title: "3,000 tensors as one list", role: "reference", node: register, settings: { way: "list" }, env: nixl },
  "register-each": { title: "3,000 tensors one by one", role: "reference", node: register, settings: { way: "each" }, env: nixl },
  "mx-import": { title: "modelexpress-client import", role: "own", node: "trials/import.js" },
  "node-empty": { title: "empty Node process", role: "reference", node: "trials/empty.js" },
  "limit-warm": { title: "limit: 2 threads, buffered 8 MiB, huge pages", role: "limit", program: "limit-warm" },
  "limit-cold": { title: "limit: O_DIRECT, depth 16, 2 MiB, huge pages", role: "limit", program: "limit-cold" },
  "safetensors-lazy": {
    title: "safetensors load_file (torch, mmap, lazy)",
    role: "peer",
    python: "peer_safetensors_torch.py",
    needs: torch,
    settings: { backend: "mmap" },
  },
  "safetensors-touched": {
    title: "safetensors load_file (torch, mmap, touched)",
    role: "peer",
    python: "peer_safetensors_torch.py",
    needs: torch,
    settings: { backend: "mmap", touch: true },
  },
  "safetensors-pread": {
    title: "safetensors (torch, pread, huge pages)",
    role: "peer",
    python: "peer_safetensors_torch.py",
    needs: torch,
    settings: { backend: "pread" },
    env: hugePages,
  },
  "safetensors-numpy": {
    title: "safetensors (numpy, huge pages)",
    role: "peer",
    python: "peer_safetensors_numpy.py",
    needs: ["safetensors", "numpy", "ml-dtypes"],
    env: hugePages,
  },
  "fastsafetensors-buffered": {
    title: "fastsafetensors (buffered, huge pages)",
    role: "peer",
    python: "peer_fastsafetensors.py",
    needs: ["fastsafetensors", "torch"],
    env: { ...hugePages, FASTSAFETENSORS_ODIRECT: "0" },
  },
  "fastsafetensors-direct": {
    title: "fastsafetensors (direct, huge pages)",
    role: "peer",
    python: "peer_fastsafetensors.py",
    needs: ["fastsafetensors", "torch"],
    env: { ...hugePages, FASTSAFETENSORS_ODIRECT: "1" },
  },
  "runai-buffered": {
    title: "runai-model-streamer (buffered)",
    role: "peer",
    python: "peer_runai.py",
    needs: ["runai-model-streamer", "torch"],
    env: { RUNAI_STREAMER_FS_STRATEGY: "sync_buffered" },
  },
  "runai-direct": {
    title: "runai-model-streamer (direct io_uring)",
    role: "peer",
    python: "peer_runai.py",
    needs: ["runai-model-streamer", "torch"],
    env: { RUNAI_STREAMER_FS_STRATEGY: "io_uring_direct" },
  },
  "nixl-buffered": {
    title: "NIXL POSIX (AIO, buffered, huge pages)",
    role: "peer",
    python: "peer_nixl_posix.py",
    needs: ["nixl-cu12", "numpy"],
    settings: { api: "use_aio", direct: false, blockBytes: nixlBlock },
  },
  "nixl-direct": {
    title: "NIXL POSIX (io_uring, direct, huge pages)",
    role: "peer",
    python: "peer_nixl_posix.py",
    needs: ["nixl-cu12", "numpy"],
    settings: { api: "use_uring", direct: true, blockBytes: nixlBlock },
  },
  "safetensors-open": {
    title: "safetensors safe_open, shapes and dtypes",
    role: "peer",
    python: "peer_safe_open.py",
    needs: ["safetensors", "numpy"],
    settings: { repeats: 40 },
  },
  "arena-native": { title: "modelexpress-client arena, native, one thread", role: "own", example: "arena_pairs" },
  "arena-typescript": { title: "modelexpress-client arena, TypeScript", role: "own", script: "bench/arena/typescript.mjs" },
  "arena-c": { title: "mx_malloc and mx_free of modelexpress-client, from C", role: "own", script: "bench/arena/c-threads.mjs" },
  "arena-c-original": { title: "those of the original arena, from C", role: "peer", python: "peer_arena_c.py", needs: ["modelexpress"] },
  "arena-original": { title: "original arena, Python", role: "peer", python: "peer_arena.py", needs: ["modelexpress"] },
} as const satisfies Record<string, System>;

export type SystemId = keyof typeof systems;

export function systemOf(id: SystemId): System {
  return systems[id];
}

/** True for systems that go through the real NIXL. */
export function usesNixl(system: System): boolean {
  return "node" in system && system.env?.MX_NIXL_LIBRARY !== undefined;
}

export interface Job {
  /** The checkpoint's folder, and its files. */
  readonly path: string;
  readonly files: readonly string[];
  /** Command to run right before the timing; empty for none. */
  readonly prepare: readonly string[];
  /** Compare all bytes with the files afterwards. */
  readonly compare: boolean;
}

/** The command line of one trial. It prints one JSON object as its last line. */
export function commandOf(
  id: SystemId,
  job: Job,
): { readonly command: string; readonly args: readonly string[]; readonly env: Readonly<Record<string, string>> } {
  const system = systemOf(id);
  const argument = JSON.stringify({ ...job, settings: system.settings ?? {} });
  if ("node" in system) return { command: process.execPath, args: [join(scriptFolder, system.node), argument], env: system.env ?? {} };
  if ("script" in system) return { command: process.execPath, args: [join(root, system.script)], env: {} };
  if ("example" in system) {
    const args = [
      "run",
      "--quiet",
      "--release",
      "--locked",
      "--manifest-path",
      join(root, "native/Cargo.toml"),
      "-p",
      "mx-core",
      "--example",
      system.example,
    ];
    return { command: "cargo", args, env: {} };
  }
  if ("python" in system) return { command: python, args: [join(peerFolder, system.python), argument], env: system.env ?? {} };
  const prepare = job.prepare.length > 0 ? ["--prepare", job.prepare.map(quote).join(" ")] : [];
  return { command: join(programFolder, system.program), args: [...(job.compare ? ["--compare"] : []), ...prepare, ...job.files], env: {} };
}

function quote(word: string): string {
  return `'${word.replaceAll("'", "'\\''")}'`;
}
