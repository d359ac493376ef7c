import { abortError, onAbort } from "../aborts.js";

/**
 * The promise, or a rejection with ERR_ABORTED as soon as the signal aborts. What the promise
 * stands for goes on unobserved.
 */
export async function abortable<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise;
  let forget = () => {};
  const aborted = new Promise<never>((_, reject) => {
    forget = onAbort(signal, () => reject(abortError(signal)));
  });
  try {
    return await Promise.race([aborted, promise]);
  } finally {
    forget();
    promise.catch(() => {});
  }
}
