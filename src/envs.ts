import { errorOf } from "./errors.js";
import { publish } from "./events.js";
import { durationForms, parseDuration } from "./units.js";

/** Names of the drivers that move the bytes of a load. */
export const driverNames = ["auto", "pread", "io_uring", "map", "nixl", "staged"] as const;
export type DriverName = (typeof driverNames)[number];

/** Most reading threads that can be asked for. */
export const maxThreads = 1024;
/** Longest deadline: what a timer of Node can hold. */
export const maxTimeoutMs = 2 ** 31 - 1;

/**
 * Longest read of NIXL's plugins: 1 GiB. A single read of Linux ends at 2 GiB less a page, and
 * NIXL's POSIX plugin takes what is cut there for done.
 */
export const maxChunkKib = 2 ** 20;
const defaultChunkKib = 131_072;

/** One environment variable. */
export interface EnvRow<Value> {
  readonly name: string;
  /**
   * Value where the variable is unset or empty; undefined where it follows from the machine, as
   * `defaultMeaning` says.
   */
  readonly fallback: Value;
  readonly defaultMeaning: string;
  /** Unit of the text, or what it is. */
  readonly unit: string;
  /** What the text may be, for the documentation and for errors. */
  readonly takes: string;
  readonly meaning: string;
  /** Undefined when the text is not allowed. */
  parse(text: string): Value | undefined;
  /** Largest value; a larger one counts as that, which the event `option.clamped` tells. */
  readonly largest?: Value;
}

function row<Value>(entry: EnvRow<Value>): EnvRow<Value> {
  return Object.freeze(entry);
}

/** A variable of the Hugging Face Hub's tools, read as they do. */
function hubRow(name: string, defaultMeaning: string, meaning: string): EnvRow<string | undefined> {
  return row({
    name,
    fallback: undefined,
    defaultMeaning,
    unit: "path",
    takes: "the path of a folder; `~` and `$NAME` are expanded",
    meaning,
    parse: (text) => text,
  });
}

/**
 * Every environment variable that the package reads. An option that is given wins over its
 * variable.
 */
export const envTable = Object.freeze({
  MX_DRIVER: row<DriverName>({
    name: "MX_DRIVER",
    fallback: "auto",
    defaultMeaning: "`auto`",
    unit: "name",
    takes: `one of ${driverNames.join(", ")}`,
    meaning: "Driver that moves the bytes, where the option `driver` is not given.",
    parse: (text) => driverNames.find((name) => name === text),
  }),
  MX_THREADS: row<number | undefined>({
    name: "MX_THREADS",
    fallback: undefined,
    defaultMeaning: "the processors this process may use (affinity and cgroup quota counted in)",
    unit: "threads",
    takes: `an integer from 1 to ${maxThreads}`,
    meaning: "Native threads that read, where the option `threads` is not given.",
    parse: (text) => (/^\d{1,4}$/.test(text) ? within(Number(text), 1, maxThreads) : undefined),
  }),
  MX_TIMEOUT: row<number>({
    name: "MX_TIMEOUT",
    fallback: 0,
    defaultMeaning: "`0`, no deadline",
    unit: "duration",
    takes: `${durationForms}; at most ${Math.floor(maxTimeoutMs / 1000)} seconds, 0 means no deadline`,
    meaning: "Deadline of a load, where the option `timeoutMs` is not given.",
    parse: (text) => within(parseDuration(text) ?? Number.NaN, 0, maxTimeoutMs),
  }),
  MX_NATIVE_ADDON: row<string | undefined>({
    name: "MX_NATIVE_ADDON",
    fallback: undefined,
    defaultMeaning: "beside the package's code, then the package for this platform",
    unit: "path",
    takes: "the path of modelexpress.<platform>.node",
    meaning: "Where the package's own native addon lies, for a program that was bundled into one file. No other place is tried then.",
    parse: (text) => text,
  }),
  MX_CUDA_LIBRARY: row<string | undefined>({
    name: "MX_CUDA_LIBRARY",
    fallback: undefined,
    defaultMeaning: "`libcuda.so.1`, then `libcuda.so`, as the loader finds them",
    unit: "path",
    takes: "the path of the CUDA driver library",
    meaning: "Where the CUDA driver's library lies, where the option `library` is not given. No other place is tried then.",
    parse: (text) => text,
  }),
  MX_ARENA_SINGLE_MR: row<boolean>({
    name: "MX_ARENA_SINGLE_MR",
    fallback: false,
    defaultMeaning: "`0`",
    unit: "0 or 1",
    takes: "0 or 1",
    meaning:
      "1: `arena.register()` makes one region of all allocations of a device and the holes between, where the driver proves it legal, and the options `spanAllocations` and `spanHoles` are not given. For UCX set `UCX_TLS=^cuda_ipc` and `UCX_CUDA_COPY_REG_WHOLE_ALLOC=off` too.",
    parse: (text) => (text === "0" ? false : text === "1" ? true : undefined),
  }),
  MX_NIXL_LIBRARY: row<string | undefined>({
    name: "MX_NIXL_LIBRARY",
    fallback: undefined,
    defaultMeaning: "the loader's path, NVIDIA's usual places, the site-packages of `python3`",
    unit: "path",
    takes: "the path of libnixl_capi.so",
    meaning: "Where NIXL's library lies, where the option `library` is not given. No other place is tried then.",
    parse: (text) => text,
  }),
  HF_HUB_CACHE: hubRow(
    "HF_HUB_CACHE",
    "`HUGGINGFACE_HUB_CACHE`, else `hub` in `HF_HOME`",
    "The Hub's local cache, where `org/name` is looked up.",
  ),
  HUGGINGFACE_HUB_CACHE: hubRow("HUGGINGFACE_HUB_CACHE", "unset", "An older name of `HF_HUB_CACHE`."),
  HF_HOME: hubRow("HF_HOME", "`huggingface` in `XDG_CACHE_HOME`", "Folder of the Hub's tools."),
  XDG_CACHE_HOME: hubRow("XDG_CACHE_HOME", "`~/.cache`", "Folder of all caches, where `HF_HOME` is not set."),
  MX_GDS_THREADS: row<number>({
    name: "MX_GDS_THREADS",
    fallback: 8,
    defaultMeaning: "`8`; of a load its option `threads`, of a `NixlAgent` the plugin's own",
    unit: "threads",
    takes: `an integer from 1 on; above ${maxThreads} it counts as that`,
    meaning: "Threads of NIXL's plugin GDS_MT, wherever it reads: in a `GdsTransferManager`, a load, a `NixlAgent`. An option goes first.",
    parse: (text) => (/^\d{1,15}$/.test(text) && Number(text) > 0 ? Number(text) : undefined),
    largest: maxThreads,
  }),
  MX_GDS_MAX_CHUNK_KB: row<number>({
    name: "MX_GDS_MAX_CHUNK_KB",
    fallback: defaultChunkKib,
    defaultMeaning: `\`${defaultChunkKib}\` (128 MiB); of a load 8 MiB`,
    unit: "KiB",
    takes: `an integer; 0 is the default, and above ${maxChunkKib} (1 GiB) it counts as that`,
    meaning: "Longest single read of a `GdsTransferManager`, and of a load by GDS_MT, where the option `maxChunkBytes` is not given.",
    parse: (text) => (/^\d{1,15}$/.test(text) ? Number(text) || defaultChunkKib : undefined),
    largest: maxChunkKib,
  }),
  MX_GDS_TIMEOUT: row<number>({
    name: "MX_GDS_TIMEOUT",
    fallback: 120_000,
    defaultMeaning: "`120`; of a load none",
    unit: "duration",
    takes: `${durationForms}; not 0, and above ${Math.floor(maxTimeoutMs / 1000)} seconds it counts as that`,
    meaning:
      "Deadline of one batch of a `GdsTransferManager`, and of one window of a load by GDS_MT, where the option `timeoutMs` is not given.",
    parse: (text) => parseDuration(text) || undefined,
    largest: maxTimeoutMs,
  }),
});

export type EnvName = keyof typeof envTable;
/** What {@link readEnv} gives for a variable. */
export type EnvValue<Name extends EnvName> = (typeof envTable)[Name]["fallback"];

function within(value: number, min: number, max: number): number | undefined {
  return value >= min && value <= max ? value : undefined;
}

/**
 * Value of one variable: MX_DRIVER a driver's name, MX_THREADS a count or undefined, MX_TIMEOUT
 * milliseconds (rounded up), 0 where there is no deadline. An empty variable counts as unset.
 * @throws ERR_ENV_INVALID naming the variable, its text and what it takes
 */
export function readEnv<Name extends EnvName>(name: Name, environment: NodeJS.ProcessEnv = process.env): EnvValue<Name> {
  const { fallback, parse, takes, largest } = envTable[name] as EnvRow<EnvValue<Name>>;
  const text = environment[name]?.trim();
  if (text === undefined || text === "") return fallback;
  const value = parse(text);
  if (value === undefined) {
    throw errorOf("ERR_ENV_INVALID", `the environment variable ${name} is ${JSON.stringify(text)}: it takes ${takes}`, {
      facts: { option: name, value: text },
    });
  }
  if (largest === undefined || value === undefined || value <= largest) return value;
  publish({ event: "option.clamped", option: name, given: value, used: largest });
  return largest;
}

/** As {@link readEnv}, but undefined where the variable is unset or empty. */
export function readSetEnv<Name extends EnvName>(name: Name): EnvValue<Name> | undefined {
  return (process.env[name]?.trim() ?? "") === "" ? undefined : readEnv(name);
}
