import { isAbortSignal } from "../aborts.js";
import { VmmArena } from "../arena/arena.js";
import { type DeviceName, deviceOfArena, memoryKindOf, requireDeviceName } from "../arena/device-name.js";
import { type KeepPagesOptions, requireKeepPages } from "../arena/kept-pages.js";
import { describe, optionInvalid, requireInteger, requireKnown, requireOneOf } from "../arguments.js";
import type { OpenCheckpointOptions } from "../checkpoint/open.js";
import { type DriverName, driverNames, maxThreads, maxTimeoutMs, readEnv } from "../envs.js";
import { errorOf } from "../errors.js";
import { addon } from "../native/load.js";
import { maxDefaultThreads, type PlanOptions, requirePlanOptions, sharedOptionNames } from "../plan/plan-load.js";
import { driverOf, driversFilling } from "../transfer/drivers.js";
import { type GdsLimits, gdsLimits, readsByGds } from "../transfer/gds/load-limits.js";
import { pluginTraits } from "../transfer/nixl/plugins.js";
import type { Progress } from "../transfer/waiting.js";
import { type MemoryCheck, memoryChecks } from "./memory-check.js";

/** Options of {@link loadCheckpoint}. */
export interface LoadOptions
  extends Omit<OpenCheckpointOptions, "signal">,
    Pick<PlanOptions, "include" | "exclude" | "placement" | "alignmentBytes" | "maxChunkBytes"> {
  /** Where the tensors go: `host` or `cuda:N`. Default: the place of `arena`, else `host`. */
  readonly device?: DeviceName | undefined;
  /**
   * How the bytes move. Default: the environment variable MX_DRIVER, else `auto`. A driver asked
   * for by name works or throws.
   */
  readonly driver?: DriverName | undefined;
  /**
   * NIXL plugin that reads, with the driver `nixl`. Default: `POSIX` into host memory, `GDS_MT`
   * into a device's.
   */
  readonly plugin?: string | undefined;
  /**
   * Native reading threads. Default: MX_THREADS, else the processors this process may use, at most
   * 16.
   */
  readonly threads?: number | undefined;
  /** Deadline of the whole call in milliseconds; 0 means none. Default: MX_TIMEOUT. */
  readonly timeoutMs?: number | undefined;
  /**
   * How long `close()` waits for reads, copies and digests in flight before it rejects with
   * ERR_TRANSFER_STUCK. Default 10 s.
   */
  readonly closeTimeoutMs?: number | undefined;
  /**
   * Aborts the load: it rejects with ERR_ABORTED, whose `cause` is the signal's reason. One signal
   * may serve any number of loads.
   */
  readonly signal?: AbortSignal | undefined;
  /**
   * Told of progress at most 20 times a second and once at the end. If it throws, the load is
   * aborted: ERR_ABORTED, whose `cause` is what it threw.
   */
  readonly onProgress?: ((progress: Progress) => void) | undefined;
  /**
   * Arena to load into; the load takes one allocation of it, and closing the model frees only that.
   * Default: an arena of the load's own.
   */
  readonly arena?: VmmArena | undefined;
  /**
   * `ignore` lets a load go on that the memory there is does not seem to fit, where the host frees
   * memory that it does not tell of (a cache of ZFS's); the report says what the check found.
   * Default `enforce`.
   */
  readonly memoryCheck?: MemoryCheck | undefined;
  /**
   * Keeps the pages of this load in the process when it is closed, and takes kept ones first: fresh
   * pages can cost more than reading the file, above all on virtual machines. Of the host's memory,
   * in an arena of the load's own. Default: pages go back to the system.
   */
  readonly keepPages?: KeepPagesOptions | undefined;
}

/** Options with every default filled in. */
export interface LoadSettings {
  readonly device: DeviceName;
  readonly driver: DriverName;
  readonly plugin: string | undefined;
  readonly threads: number;
  readonly maxChunkBytes: number;
  readonly timeoutMs: number;
  readonly closeTimeoutMs: number;
  readonly signal: AbortSignal | undefined;
  readonly onProgress: ((progress: Progress) => void) | undefined;
  readonly arena: VmmArena | undefined;
  readonly memoryCheck: MemoryCheck;
  readonly keepPages: KeepPagesOptions | undefined;
  readonly plan: PlanOptions;
  /** What counts for reads by GDS_MT in place of `threads` and over `timeoutMs`. */
  readonly gds: Omit<GdsLimits, "maxChunkBytes">;
}

const known: readonly (keyof LoadOptions)[] = [
  "weights",
  "plugin",
  ...sharedOptionNames,
  "timeoutMs",
  "closeTimeoutMs",
  "signal",
  "onProgress",
  "arena",
  "memoryCheck",
  "keepPages",
];

/**
 * Checks options, all of them before anything is done, and fills in defaults.
 * @throws ERR_OPTION_INVALID, ERR_OPTION_UNKNOWN, ERR_OPTION_CONFLICT, ERR_ENV_INVALID,
 *   ERR_ARENA_NOT_LOADABLE, ERR_ARENA_CLOSED
 */
export function resolveLoadOptions(options: LoadOptions, alsoKnown: readonly string[] = []): LoadSettings {
  requireKnown("options", options, [...known, ...alsoKnown]);
  const driver = requireOneOf("driver", options.driver ?? readEnv("MX_DRIVER"), driverNames);
  const threads = requireInteger("threads", options.threads ?? readEnv("MX_THREADS") ?? defaultThreads(), { min: 1, max: maxThreads });
  const timeoutMs = requireInteger("timeoutMs", options.timeoutMs ?? readEnv("MX_TIMEOUT"), { min: 0, max: maxTimeoutMs });
  const closeTimeoutMs = requireInteger("closeTimeoutMs", options.closeTimeoutMs ?? 10_000, { min: 0, max: maxTimeoutMs });
  const { signal, onProgress, arena, plugin } = options;
  if (signal !== undefined && !isAbortSignal(signal)) throw optionInvalid("signal", "an AbortSignal", signal);
  if (onProgress !== undefined && typeof onProgress !== "function") throw optionInvalid("onProgress", "a function", onProgress);
  const given = options.device === undefined ? undefined : requireDeviceName("device", options.device);
  const device = arena === undefined ? (given ?? "host") : requireLoadable(arena, given, driver);
  requireFills(driver, device);
  if (plugin !== undefined) requirePlugin(plugin, driver, device);
  if (driver === "map" && options.placement === "aligned") {
    throw errorOf(
      "ERR_OPTION_CONFLICT",
      'the driver "map" keeps every byte where the file has it: it cannot be combined with placement "aligned"',
      {
        facts: { option: "placement" },
      },
    );
  }
  const gds = readsByGds(driver, plugin, device) ? gdsLimits() : {};
  const { include, exclude, placement, alignmentBytes, maxChunkBytes = gds.maxChunkBytes } = options;
  const plan: PlanOptions = { include, exclude, placement, alignmentBytes, maxChunkBytes, device, driver, threads };
  const required = requirePlanOptions(plan);
  return {
    device,
    driver,
    plugin,
    threads,
    maxChunkBytes: required.maxChunkBytes,
    timeoutMs,
    closeTimeoutMs,
    signal,
    onProgress,
    arena,
    memoryCheck: requireOneOf("memoryCheck", options.memoryCheck ?? "enforce", memoryChecks),
    keepPages: options.keepPages === undefined ? undefined : requireKeeping(options.keepPages, device, driver, arena),
    plan,
    gds: {
      threads: options.threads === undefined ? gds.threads : undefined,
      timeoutMs: options.timeoutMs === undefined ? gds.timeoutMs : undefined,
    },
  };
}

/**
 * Reading threads where nobody asks for a number: copying out of the page cache saturates memory
 * with a few; more of them only contend.
 */
export function defaultThreads(): number {
  return Math.min(addon().availableParallelism(), maxDefaultThreads);
}

/** Drivers say themselves which memory they fill. */
function requireFills(driver: DriverName, device: DeviceName): void {
  const memory = memoryKindOf(device);
  if (driverOf(driver, memory).capabilities.memory.includes(memory)) return;
  const others = driversFilling(memory).join(", ");
  throw errorOf("ERR_OPTION_CONFLICT", `driver ${JSON.stringify(driver)} cannot load to ${device}: use one of ${others}`, {
    facts: { option: "driver", driver, device },
  });
}

/**
 * Pages are kept of memory that a load has for itself, and that is its own rather than a file's.
 */
function requireKeeping(
  keepPages: KeepPagesOptions,
  device: DeviceName,
  driver: DriverName,
  arena: VmmArena | undefined,
): KeepPagesOptions {
  const limits = requireKeepPages("keepPages", keepPages);
  const other =
    device !== "host" ? `device ${device}` : driver === "map" ? 'the driver "map"' : arena === undefined ? undefined : "an arena";
  if (other === undefined) return limits;
  throw errorOf("ERR_OPTION_CONFLICT", `keepPages is for host memory that the load allocates itself: it cannot be combined with ${other}`, {
    facts: { option: "keepPages" },
  });
}

function requirePlugin(plugin: unknown, driver: DriverName, device: DeviceName): void {
  if (typeof plugin !== "string" || plugin === "") throw optionInvalid("plugin", "the name of a NIXL plugin", plugin);
  if (driver !== "nixl") {
    throw errorOf(
      "ERR_OPTION_CONFLICT",
      `plugin ${JSON.stringify(plugin)} goes with the driver "nixl", not with ${JSON.stringify(driver)}`,
      {
        facts: { option: "plugin" },
      },
    );
  }
  if (device === "host" || pluginTraits(plugin).devices) return;
  throw errorOf("ERR_OPTION_CONFLICT", `plugin ${JSON.stringify(plugin)} reads into host memory only, not to ${device}: use GDS_MT`, {
    facts: { option: "plugin", plugin, device },
  });
}

/** The place of an arena's memory, which must be the one that was asked for, if any was. */
function requireLoadable(arena: unknown, device: DeviceName | undefined, driver: DriverName): DeviceName {
  if (!(arena instanceof VmmArena)) throw optionInvalid("arena", "a VmmArena", describe(arena));
  if (arena.closed) throw errorOf("ERR_ARENA_CLOSED", "the arena to load into is closed");
  const found = deviceOfArena(arena);
  if (found === undefined) {
    const message = `the arena's backend declares memory ${JSON.stringify(arena.memory)} of ${arena.device}: loads need "host", or "device" of cuda:N`;
    throw errorOf("ERR_ARENA_NOT_LOADABLE", message, { facts: { device: arena.device } });
  }
  if (device !== undefined && device !== found) {
    throw errorOf("ERR_OPTION_CONFLICT", `device is ${device}, and the arena to load into is on ${found}`, {
      facts: { option: "device", device, arenaDevice: found },
    });
  }
  if (driver === "map" && found === "host" && !arena.nativeHost) {
    throw errorOf(
      "ERR_OPTION_CONFLICT",
      'the driver "map" maps files over memory of hostBackend() only, not of a backend written in JavaScript',
      {
        facts: { option: "arena" },
      },
    );
  }
  return found;
}
