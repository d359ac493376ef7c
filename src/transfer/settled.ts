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
 * Gives a rejection the promise that tells when its reads are over, as its property `settled`. Reads that are stuck keep no process alive, unless
 * `settled` is asked for. The reason of an `AbortSignal` belongs to the caller and may serve several loads, so promises add up; a primitive or
 * frozen reason stays as it is.
 */
export function withSettled(reason: unknown, settled: Promise<void>): unknown {
  if (typeof reason !== "object" || reason === null || !Object.isExtensible(reason)) return reason;
  const earlier = Object.getOwnPropertyDescriptor(reason, "settled");
  if (earlier !== undefined && !earlier.configurable) return reason;
  let waited: Promise<void> | undefined;
  Object.defineProperty(reason, "settled", {
    configurable: true,
    enumerable: false,
    get(): Promise<void> {
      waited ??= keepingAlive(Promise.all([earlier?.get?.call(reason) ?? earlier?.value, settled]).then(() => undefined));
      return waited;
    },
  });
  return reason;
}
