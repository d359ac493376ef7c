import { abortError, onAbort, ownController } from "../aborts.js";
import { errorOf } from "../errors.js";

/** How long a call may take, and what ends it early. */
export interface Limits {
  readonly signal: AbortSignal | undefined;
  /** A point of `performance.now()`; undefined for never. */
  readonly deadline: number | undefined;
  /** The time allowed, for the error's message. */
  readonly timeoutMs: number;
}

/**
 * Work with a signal that aborts at the deadline, too.
 * @param what what `work` has not done at the deadline, in words
 * @throws what `work` throws, ERR_ABORTED and ERR_TRANSFER_TIMEOUT among it
 */
export async function before<T>(
  { signal, deadline, timeoutMs }: Limits,
  what: string,
  work: (signal: AbortSignal | undefined) => Promise<T>,
): Promise<T> {
  if (deadline === undefined) return await work(signal);
  const late = ownController();
  const timer = setTimeout(
    () => late.abort(errorOf("ERR_TRANSFER_TIMEOUT", `${what} after ${timeoutMs} ms`, { facts: { timeoutMs } })),
    Math.max(0, deadline - performance.now()),
  );
  const forget = onAbort(signal, () => signal && late.abort(abortError(signal)));
  try {
    return await work(late.signal);
  } finally {
    forget();
    clearTimeout(timer);
  }
}
