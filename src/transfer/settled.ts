import { ModelExpressError } from "../errors.js";

/** Longest interval that a timer takes; the timer is there only to keep the event loop alive. */
const longMs = 2 ** 31 - 1;

/** The same promise, but the process does not end for want of work while somebody waits for it. */
export async function keepingAlive<T>(promise: Promise<T>): Promise<T> {
  const timer = setInterval(() => {}, longMs);
  try {
    return await promise;
  } finally {
    clearInterval(timer);
  }
}

/**
 * Gives an error of ours the promise that tells when its reads are over, as its property `settled`.
 * Reads that are stuck keep no process alive, unless `settled` is asked for. Promises of one error
 * add up. What is not ours, such as an error of the caller's backend, stays as it is.
 */
export function withSettled(reason: unknown, settled: Promise<void>): unknown {
  if (!(reason instanceof ModelExpressError)) return reason;
  const earlier = Object.getOwnPropertyDescriptor(reason, "settled");
  let waited: Promise<void> | undefined;
  Object.defineProperty(reason, "settled", {
    configurable: true,
    enumerable: false,
    get(): Promise<void> {
      waited ??= keepingAlive(Promise.all([earlier?.get?.call(reason), settled]).then(() => undefined));
      return waited;
    },
  });
  return reason;
}
