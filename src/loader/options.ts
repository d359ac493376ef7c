import { VmmArena } from "../arena/arena.js";
import type { OpenCheckpointOptions } from "../checkpoint/open.js";
import { type DriverName, driverNames, maxThreads, maxTimeoutMs, readEnv } from "../envs.js";
import { errorOf } from "../errors.js";
import { addon } from "../native/load.js";
import type { PlanOptions } from "../plan/plan-load.js";
import type { Progress } from "../transfer/waiting.js";
import { describe, optionInvalid, requireInteger, requireOneOf } from "../units.js";

/** Options of {@link loadCheckpoint}. */
export interface LoadOptions
  extends Omit<OpenCheckpointOptions, "signal">,
    Pick<PlanOptions, "include" | "exclude" | "placement" | "alignmentBytes" | "maxChunkBytes"> {
  /** Where the tensors go. Default `host`. */
  readonly device?: "host" | undefined;
  /** How the bytes move. Default: the environment variable MX_DRIVER, else `auto`. A driver asked for by name works or throws. */
  readonly driver?: DriverName | undefined;
  /** NIXL plugin that reads, with the driver `nixl`: `POSIX`, the default, or `GDS_MT`. */
  readonly plugin?: string | undefined;
  /** Native reading threads. Default: MX_THREADS, else the processors this process may use, at most 16. */
  readonly threads?: number | undefined;
  /** Deadline of the whole call in milliseconds; 0 means none. Default: MX_TIMEOUT. */
  readonly timeoutMs?: number | undefined;
  /** How long `close()` waits for reads and digests in flight before it rejects with ERR_TRANSFER_STUCK. Default 10 s. */
  readonly closeTimeoutMs?: number | undefined;
  /** Aborts the load: it rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
  /** Told of progress at most 20 times a second and once at the end. If it throws, the load is aborted with what it threw. */
  readonly onProgress?: ((progress: Progress) => void) | undefined;
  /** Arena to load into; the load takes one allocation of it, and closing the model frees only that. Default: an arena of the load's own. */
  readonly arena?: VmmArena | undefined;
}

/** Options with every default filled in. */
export interface LoadSettings {
  readonly driver: DriverName;
  readonly plugin: string | undefined;
  readonly threads: number;
  readonly timeoutMs: number;
  readonly closeTimeoutMs: number;
  readonly signal: AbortSignal | undefined;
  readonly onProgress: ((progress: Progress) => void) | undefined;
  readonly arena: VmmArena | undefined;
  readonly plan: PlanOptions;
}

const known: readonly (keyof LoadOptions)[] = [
  "weights",
  "include",
  "exclude",
  "placement",
  "alignmentBytes",
  "maxChunkBytes",
  "device",
  "driver",
  "plugin",
  "threads",
  "timeoutMs",
  "closeTimeoutMs",
  "signal",
  "onProgress",
  "arena",
];

/** Copying out of the page cache saturates memory with a few threads; more of them only contend. */
const maxDefaultThreads = 16;

/**
 * Checks options, all of them before anything is done, and fills in defaults.
 * @throws ERR_OPTION_INVALID, ERR_OPTION_UNKNOWN, ERR_OPTION_CONFLICT, ERR_ENV_INVALID, ERR_ARENA_NOT_LOADABLE, ERR_ARENA_CLOSED
 */
export function resolveLoadOptions(options: LoadOptions, alsoKnown: readonly string[] = []): LoadSettings {
  if (typeof options !== "object" || options === null) throw optionInvalid("options", "an object", options);
  const names: readonly string[] = [...known, ...alsoKnown];
  for (const name of Object.keys(options)) {
    if (!names.includes(name)) {
      throw errorOf("ERR_OPTION_UNKNOWN", `there is no option ${JSON.stringify(name)}; there are ${names.join(", ")}`, {
        facts: { option: name },
      });
    }
  }
  const driver = requireOneOf("driver", options.driver ?? readEnv("MX_DRIVER"), driverNames);
  const device = requireOneOf("device", options.device ?? "host", ["host"] as const);
  const threads = requireInteger("threads", options.threads ?? readEnv("MX_THREADS") ?? defaultThreads(), { min: 1, max: maxThreads });
  const timeoutMs = requireInteger("timeoutMs", options.timeoutMs ?? readEnv("MX_TIMEOUT"), { min: 0, max: maxTimeoutMs });
  const closeTimeoutMs = requireInteger("closeTimeoutMs", options.closeTimeoutMs ?? 10_000, { min: 0, max: maxTimeoutMs });
  const { signal, onProgress, arena, plugin } = options;
  if (plugin !== undefined) requirePlugin(plugin, driver);
  if (signal !== undefined && !(signal instanceof AbortSignal)) throw optionInvalid("signal", "an AbortSignal", signal);
  if (onProgress !== undefined && typeof onProgress !== "function") throw optionInvalid("onProgress", "a function", onProgress);
  if (arena !== undefined) requireLoadable(arena, driver);
  if (driver === "map" && options.placement === "aligned") {
    throw errorOf(
      "ERR_OPTION_CONFLICT",
      'the driver "map" keeps every byte where the file has it: it cannot be combined with placement "aligned"',
      {
        facts: { option: "placement" },
      },
    );
  }
  return {
    driver,
    plugin,
    threads,
    timeoutMs,
    closeTimeoutMs,
    signal,
    onProgress,
    arena,
    plan: {
      include: options.include,
      exclude: options.exclude,
      placement: options.placement,
      alignmentBytes: options.alignmentBytes,
      maxChunkBytes: options.maxChunkBytes,
      device,
      pageCongruent: driver === "map",
    },
  };
}

/** Reading threads where nobody asks for a number. */
export function defaultThreads(): number {
  return Math.min(addon().availableParallelism(), maxDefaultThreads);
}

function requirePlugin(plugin: unknown, driver: DriverName): void {
  if (typeof plugin !== "string" || plugin === "") throw optionInvalid("plugin", "the name of a NIXL plugin", plugin);
  if (driver === "nixl") return;
  throw errorOf("ERR_OPTION_CONFLICT", `plugin ${JSON.stringify(plugin)} goes with the driver "nixl", not with ${JSON.stringify(driver)}`, {
    facts: { option: "plugin" },
  });
}

function requireLoadable(arena: unknown, driver: DriverName): void {
  if (!(arena instanceof VmmArena)) throw optionInvalid("arena", "a VmmArena", describe(arena));
  if (arena.closed) throw errorOf("ERR_ARENA_CLOSED", "the arena to load into is closed");
  if (arena.memory !== "host") {
    throw errorOf("ERR_ARENA_NOT_LOADABLE", `the arena's backend declares memory ${JSON.stringify(arena.memory)}: loads need "host"`);
  }
  if (driver === "map" && !arena.nativeHost) {
    throw errorOf(
      "ERR_OPTION_CONFLICT",
      'the driver "map" maps files over memory of hostBackend() only, not of a backend written in JavaScript',
      {
        facts: { option: "arena" },
      },
    );
  }
}
