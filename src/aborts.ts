import { errorOf, type ModelExpressError } from "./errors.js";

/**
 * What waits for each signal. One listener of ours stands for all of them: Node warns where a
 * signal has more than ten.
 */
const waiting = new WeakMap<AbortSignal, { readonly callbacks: Set<() => void>; readonly listener: () => void }>();

/**
 * Calls `callback` once when the signal aborts, at once where it has; the result takes it back. The
 * signal may be of another realm, and may serve any number of calls.
 */
export function onAbort(signal: AbortSignal | undefined, callback: () => void): () => void {
  if (signal === undefined) return () => {};
  if (signal.aborted) {
    callback();
    return () => {};
  }
  let entry = waiting.get(signal);
  if (entry === undefined) {
    const callbacks = new Set<() => void>();
    const listener = () => {
      waiting.delete(signal);
      for (const each of callbacks) each();
    };
    entry = { callbacks, listener };
    waiting.set(signal, entry);
    signal.addEventListener("abort", listener, { once: true });
  }
  const { callbacks, listener } = entry;
  // A function of its own, so that one callback can wait twice.
  const call = () => callback();
  callbacks.add(call);
  return () => {
    callbacks.delete(call);
    if (callbacks.size > 0 || waiting.get(signal)?.listener !== listener) return;
    waiting.delete(signal);
    signal.removeEventListener("abort", listener);
  };
}

/** Signals of our own, whose reasons are errors of ours and go up as they are. */
const ours = new WeakSet<AbortSignal>();

/** A controller for use within one call: abort it with an error of ours. */
export function ownController(): AbortController {
  const controller = new AbortController();
  ours.add(controller.signal);
  return controller;
}

/**
 * The error of a call whose signal aborted: ERR_ABORTED, with the signal's reason as its `cause`.
 * The reason itself is never touched.
 */
export function abortError(signal: AbortSignal): ModelExpressError {
  if (ours.has(signal)) return signal.reason as ModelExpressError;
  return stoppedBy("its signal aborted", signal.reason);
}

/** ERR_ABORTED for a reason of the caller's. */
export function stoppedBy(what: string, reason: unknown): ModelExpressError {
  const said = reason instanceof Error ? reason.message : typeof reason === "string" ? reason : "";
  return errorOf("ERR_ABORTED", `the call was stopped: ${what}${said === "" ? "" : ` (${said})`}`, { cause: reason });
}

/** @throws ERR_ABORTED */
export function requireNotAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw abortError(signal);
}

/** Whether a value can serve as an AbortSignal, of this realm or another. */
export function isAbortSignal(value: unknown): value is AbortSignal {
  if (value instanceof AbortSignal) return true;
  if (typeof value !== "object" || value === null) return false;
  const { aborted, addEventListener, removeEventListener } = value as Partial<AbortSignal>;
  return typeof aborted === "boolean" && typeof addEventListener === "function" && typeof removeEventListener === "function";
}
