import { type ErrorCode, errorCodes } from "../error-codes.js";
import { errorOf, ModelExpressError } from "../errors.js";

/**
 * What a native error carries across the boundary, as JSON. `facts` become fields of the JavaScript
 * error.
 */
interface NativeFailure {
  readonly code: string;
  readonly message: string;
  readonly facts: Readonly<Record<string, string | number>>;
}

/**
 * Turns what the addon threw, or the JSON it reported, into an error of the class tree; anything
 * else is passed through.
 */
export function fromNative(thrown: unknown): unknown {
  if (thrown instanceof ModelExpressError) return thrown;
  const text = typeof thrown === "string" ? thrown : thrown instanceof Error ? thrown.message : undefined;
  if (text === undefined || !text.startsWith("{")) return thrown;
  let failure: NativeFailure;
  try {
    failure = JSON.parse(text) as NativeFailure;
  } catch {
    return thrown;
  }
  const known = Object.hasOwn(errorCodes, failure.code);
  const code: ErrorCode = known ? (failure.code as ErrorCode) : "ERR_INTERNAL";
  return errorOf(code, failure.message, { facts: failure.facts });
}

/** Runs a synchronous call of the addon. */
export function callNative<T>(call: () => T): T {
  try {
    return call();
  } catch (thrown) {
    throw fromNative(thrown);
  }
}

/** Awaits an asynchronous call of the addon. */
export async function awaitNative<T>(call: () => Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (thrown) {
    throw fromNative(thrown);
  }
}
