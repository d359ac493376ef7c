import { InvalidArgumentError, Option } from "commander";
import { type DeviceName, requireDeviceName } from "../arena/device-name.js";
import { requireOneOf } from "../arguments.js";
import { type DriverName, driverNames, maxThreads, maxTimeoutMs } from "../envs.js";
import { type Placement, placementNames } from "../plan/placement.js";
import { byteSizeForms, durationForms, parseBytes, parseDuration } from "../units.js";

/** Options that several commands share, each made anew: Commander keeps state in them. */
export const options = {
  json: () => new Option("--json", "print one JSON document; errors too, on stderr"),
  weights: () => new Option("--weights <name>", "which weights to take from a folder that holds several: a family or a file name"),
  driver: () => choice("--driver <name>", "how the bytes move", driverNames),
  device: () =>
    new Option("--device <name>", "where the tensors go: host or cuda:N (default: host)").argParser((text) =>
      requireDeviceName("device", text),
    ),
  plugin: () => new Option("--plugin <name>", "NIXL's plugin that reads, with --driver nixl (default: POSIX, to a device GDS_MT)"),
  include: () =>
    new Option("--include <pattern>", "only tensors of this name or glob (* ? [..] {a,b}); may be given several times").argParser(collect),
  exclude: () => new Option("--exclude <pattern>", "no tensors of this name or glob; may be given several times").argParser(collect),
  placement: () =>
    choice(
      "--placement <kind>",
      "packed keeps the order of the file, aligned puts each tensor at a multiple of --alignment",
      placementNames,
    ),
  alignment: () => new Option("--alignment <bytes>", "alignment of the tensors in memory, a power of two").argParser(bytes),
  maxChunk: () => new Option("--max-chunk <bytes>", "longest piece that is read at a time").argParser(bytes),
  threads: () =>
    new Option("--threads <count>", "threads that read (default: the processors this process may use)").argParser(integer(1, maxThreads)),
  timeout: () =>
    new Option("--timeout <duration>", "give up after so long, with exit code 75: 5s, 500ms, 1h30m; a number alone is seconds").argParser(
      duration,
    ),
  ignoreMemory: () => new Option("--ignore-memory", "load also where the memory there is does not seem to fit"),
};

/**
 * An option that takes one of these names; another one is ERR_OPTION_UNKNOWN, as it is for the
 * library.
 */
export function choice(flags: string, description: string, names: readonly string[]): Option {
  const option = new Option(flags, description).choices(names);
  return option.argParser((text) => requireOneOf(option.name(), text, names));
}

export function bytes(text: string): number {
  const parsed = parseBytes(text);
  if (parsed === undefined) throw new InvalidArgumentError(`It takes ${byteSizeForms}.`);
  return parsed;
}

export function integer(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
    if (!(value >= min && value <= max)) throw new InvalidArgumentError(`It takes an integer from ${min} to ${max}.`);
    return value;
  };
}

/** A duration in milliseconds. */
function duration(text: string): number {
  const ms = parseDuration(text);
  if (ms === undefined || ms > maxTimeoutMs)
    throw new InvalidArgumentError(`It takes ${durationForms}; at most ${Math.floor(maxTimeoutMs / 1000)} seconds, 0 for no deadline.`);
  return ms;
}

function collect(text: string, before: readonly string[] | undefined): string[] {
  return [...(before ?? []), text];
}

/**
 * What the shared options give, as Commander names them; options that were not given are not there.
 */
export interface GivenOptions {
  readonly weights?: string;
  readonly device?: DeviceName;
  readonly driver?: DriverName;
  readonly plugin?: string;
  readonly include?: string[];
  readonly exclude?: string[];
  readonly placement?: Placement;
  readonly alignment?: number;
  readonly maxChunk?: number;
  readonly threads?: number;
  /** Milliseconds. */
  readonly timeout?: number;
  readonly ignoreMemory?: true;
  readonly json?: true;
}

/** Options whose flag has another name than the library's option. */
const names = { alignment: "alignmentBytes", maxChunk: "maxChunkBytes", timeout: "timeoutMs" } as const;

const flags: ReadonlyMap<string, string> = new Map([
  ...["device", "driver", "plugin", "include", "exclude", "placement", "threads", "weights"].map((name) => [name, `--${name}`] as const),
  ["alignmentBytes", "--alignment"],
  ["maxChunkBytes", "--max-chunk"],
  ["timeoutMs", "--timeout"],
  ["memoryCheck", "--ignore-memory"],
]);

/** A message about an option of the library, which names the flag instead. */
export function namingFlag(message: string, option: unknown): string {
  const flag = typeof option === "string" ? flags.get(option) : undefined;
  return flag === undefined ? message : message.replace(new RegExp(`\\b${option}\\b`), flag);
}

/** The same as the library names them, without those that are the command's own. */
export function libraryOptions(given: GivenOptions) {
  const entries = Object.entries(given).map(([name, value]) => [names[name as keyof typeof names] ?? name, value]);
  const { json: _, digest: __, ignoreMemory, ...options } = Object.fromEntries(entries) as LibraryOptions;
  return ignoreMemory ? { ...options, memoryCheck: "ignore" as const } : options;
}

interface LibraryOptions extends Omit<GivenOptions, "alignment" | "maxChunk" | "timeout"> {
  readonly alignmentBytes?: number;
  readonly maxChunkBytes?: number;
  readonly timeoutMs?: number;
  readonly digest?: true;
}
