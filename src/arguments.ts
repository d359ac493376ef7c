import { inspect } from "node:util";
import { errorOf, type ModelExpressError } from "./errors.js";
import { isPowerOfTwo } from "./units.js";

/** A value as it is shown in a message: short, on one line. */
export function describe(value: unknown): string {
  const text = inspect(value, { depth: 0, maxStringLength: 80, maxArrayLength: 4, breakLength: Number.POSITIVE_INFINITY });
  return text.length > 100 ? `${text.slice(0, 99)}…` : text;
}

/** The error for an option with a wrong value: `threads must be a positive integer, got -1`. */
export function optionInvalid(option: string, takes: string, value: unknown): ModelExpressError {
  return errorOf("ERR_OPTION_INVALID", `${option} must be ${takes}, got ${describe(value)}`, { facts: { option, value } });
}

export interface IntegerBounds {
  /** Smallest value allowed. */
  readonly min: number;
  /** Largest value allowed; default 2^53 - 1. */
  readonly max?: number;
}

/**
 * Gives back `value` when it is an integer within the bounds.
 * @throws ERR_OPTION_INVALID naming the option and the value
 */
export function requireInteger(option: string, value: unknown, { min, max = Number.MAX_SAFE_INTEGER }: IntegerBounds): number {
  if (typeof value === "number" && Number.isSafeInteger(value) && value >= min && value <= max) return value;
  const range = max === Number.MAX_SAFE_INTEGER ? `of at least ${min}` : `from ${min} to ${max}`;
  throw optionInvalid(option, min === 1 && max === Number.MAX_SAFE_INTEGER ? "a positive integer" : `an integer ${range}`, value);
}

/**
 * Gives back `value` when it is a power of two up to `max`.
 * @throws ERR_OPTION_INVALID naming the option and the value
 */
export function requirePowerOfTwo(option: string, value: unknown, max: number): number {
  if (typeof value === "number" && isPowerOfTwo(value) && value <= max) return value;
  throw optionInvalid(option, `a power of two up to ${max}`, value);
}

/**
 * Refuses what is no object, and options that do not exist: a misspelt one would silently do
 * nothing.
 * @throws ERR_OPTION_INVALID, ERR_OPTION_UNKNOWN, listing the names
 */
export function requireKnown(what: string, options: unknown, names: readonly string[]): void {
  if (typeof options !== "object" || options === null) throw optionInvalid(what, "an object", options);
  const other = Object.keys(options).find((name) => !names.includes(name));
  if (other === undefined) return;
  throw errorOf("ERR_OPTION_UNKNOWN", `there is no option ${JSON.stringify(other)}; there are ${names.join(", ")}`, {
    facts: { option: other },
  });
}

/**
 * Gives back `value` when it is one of the names.
 * @throws ERR_OPTION_UNKNOWN for another string, listing the names; ERR_OPTION_INVALID for what is
 *   no string
 */
export function requireOneOf<Name extends string>(option: string, value: unknown, names: readonly Name[]): Name {
  const found = names.find((name) => name === value);
  if (found !== undefined) return found;
  if (typeof value !== "string") throw optionInvalid(option, `one of ${names.join(", ")}`, value);
  throw errorOf("ERR_OPTION_UNKNOWN", `${option} ${describe(value)} does not exist: use one of ${names.join(", ")}`, {
    facts: { option, value },
  });
}
