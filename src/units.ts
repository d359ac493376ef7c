/** Bytes in each unit that sizes are written in. */
const unitBytes: ReadonlyMap<string, number> = new Map([
  ["", 1],
  ["b", 1],
  ["kb", 1e3],
  ["mb", 1e6],
  ["gb", 1e9],
  ["tb", 1e12],
  ["kib", 2 ** 10],
  ["mib", 2 ** 20],
  ["gib", 2 ** 30],
  ["tib", 2 ** 40],
]);

/** What {@link parseBytes} takes, for messages and help texts. */
export const byteSizeForms = "a number of bytes, or one with a unit: B, KiB, MiB, GiB, TiB, kB, MB, GB, TB";

/**
 * Bytes of a size such as `2GiB`, `1.5 MiB`, `64kB` or `4096`; case does not matter. Undefined for
 * anything else, for a part of a byte, and for a size beyond 2^53 - 1.
 */
export function parseBytes(text: string): number | undefined {
  const parts = /^(\d+(?:\.\d+)?)\s*([kmgt]?i?b|)$/i.exec(text.trim());
  const unit = unitBytes.get((parts?.[2] ?? "?").toLowerCase());
  if (parts === null || unit === undefined) return undefined;
  const bytes = Number(parts[1]) * unit;
  return Number.isSafeInteger(bytes) ? bytes : undefined;
}

const binaryUnits = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"] as const;

/**
 * A size for people: `0 B`, `512 B`, `2 GiB`, `1.53 MiB`; three significant digits, binary units.
 */
export function formatBytes(bytes: number): string {
  let value = Math.abs(bytes);
  let unit = 0;
  // 1023.5 KiB would be shown as 1024 KiB: one unit up instead.
  while (value >= (unit === 0 ? 1024 : 1023.5) && unit < binaryUnits.length - 1) {
    value /= 1024;
    unit++;
  }
  const digits = value >= 1000 ? String(Math.round(value)) : String(Number(value.toPrecision(3)));
  return `${bytes < 0 ? "-" : ""}${digits} ${binaryUnits[unit]}`;
}

/**
 * A rate for people, in the decimal units that storage is sold by: `2.61 GB/s`. `-` where the rate
 * is not known.
 */
export function formatRate(bytesPerSecond: number): string {
  if (!Number.isFinite(bytesPerSecond)) return "-";
  for (const [unit, size] of [
    ["GB/s", 1e9],
    ["MB/s", 1e6],
    ["kB/s", 1e3],
  ] as const) {
    if (bytesPerSecond >= size) return `${Number((bytesPerSecond / size).toPrecision(3))} ${unit}`;
  }
  return `${Math.round(bytesPerSecond)} B/s`;
}

/** Milliseconds in each unit that durations are written in; a number alone is seconds. */
const unitMs: ReadonlyMap<string, number> = new Map([
  ["", 1e3],
  ["ms", 1],
  ["s", 1e3],
  ["min", 6e4],
  ["m", 6e4],
  ["h", 3.6e6],
]);

/** What {@link parseDuration} takes, for messages and help texts. */
export const durationForms = "seconds, or a duration with units: 500ms, 5s, 1.5min, 1h30m";

/**
 * Milliseconds of a duration such as `5s`, `500ms`, `1.5 min`, `1h30m` or `30` (seconds), rounded
 * up: the shortest is a millisecond, not none. Undefined for anything else; each unit stands once,
 * the longest first.
 */
export function parseDuration(text: string): number | undefined {
  let [ms, before] = [0, Number.POSITIVE_INFINITY];
  const parts = /^(?:\s*\d{1,15}(?:\.\d{1,9})?\s*(?:ms|s|min|m|h))+$|^\d{1,15}(?:\.\d{1,9})?$/i.test(text.trim())
    ? text.matchAll(/(\d+(?:\.\d+)?)\s*([a-z]*)/gi)
    : [];
  for (const [, number, unit] of parts) {
    const each = unitMs.get(unit?.toLowerCase() ?? "") ?? Number.NaN;
    if (!(each < before)) return undefined;
    before = each;
    ms += Number(number) * each;
  }
  return before === Number.POSITIVE_INFINITY ? undefined : Math.ceil(Number(ms.toPrecision(12)));
}

/** A duration for people: `0.25 ms`, `12.3 ms`, `1.5 s`, `2 min 5 s`. */
export function formatDuration(milliseconds: number): string {
  if (milliseconds < 999.5) return `${Number(milliseconds.toPrecision(3))} ms`;
  const seconds = milliseconds / 1000;
  if (seconds < 59.95) return `${Number(seconds.toPrecision(3))} s`;
  const whole = Math.round(seconds);
  return `${Math.floor(whole / 60)} min ${whole % 60} s`;
}

/**
 * A huge page of the host, and what CUDA maps memory of a device in: arenas, slots and direct reads
 * keep to its multiples.
 */
export const hugePageBytes = 2 * 2 ** 20;

/**
 * Smallest multiple of `multiple` that is not below `value`. Both are safe integers, `value` at
 * least 0.
 */
export function roundUp(value: number, multiple: number): number {
  const rest = value % multiple;
  return rest === 0 ? value : value + (multiple - rest);
}

/**
 * Largest multiple of `multiple` that is not above `value`. Both are safe integers, `value` at
 * least 0.
 */
export function roundDown(value: number, multiple: number): number {
  return value - (value % multiple);
}

/** True for 1, 2, 4, ... 2^52. */
export function isPowerOfTwo(value: number): boolean {
  if (!Number.isSafeInteger(value) || value < 1) return false;
  let rest = value;
  while (rest % 2 === 0) rest /= 2;
  return rest === 1;
}
