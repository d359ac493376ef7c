import { abortError, onAbort, stoppedBy } from "../aborts.js";
import { errorOf } from "../errors.js";
import { publish } from "../events.js";
import { deferred } from "./deferred.js";
import type { Transfer } from "./driver.js";
import { keepingAlive, withSettled } from "./settled.js";

/** Called at most this often, plus once at the end. */
export const progressIntervalMs = 50;
/**
 * How long a failure waits for the other reads to end: usually they do at once, and then nothing is
 * left behind when the caller learns of it.
 */
const graceMs = 100;

export interface Progress {
  /** Bytes in place so far. */
  readonly bytes: number;
  /** Bytes of the whole load. */
  readonly totalBytes: number;
}

export interface WaitOptions {
  readonly signal?: AbortSignal | undefined;
  /** Point of `performance.now()` at which the load is late; undefined for never. */
  readonly deadline?: number | undefined;
  /** The time allowed, for the error's message. */
  readonly timeoutMs?: number | undefined;
  readonly totalBytes: number;
  readonly onProgress?: ((progress: Progress) => void) | undefined;
}

/**
 * Waits for a transfer. At an abort, a deadline, a failed read or a throwing `onProgress` the
 * transfer is aborted, and `cleanUp` runs once nothing is in flight any more; the rejection comes
 * at once (within a grace of 100 ms) and carries `settled`, which resolves after `cleanUp`.
 * @throws ERR_ABORTED, whose `cause` is the reason of `signal` or what `onProgress` threw;
 *   ERR_TRANSFER_TIMEOUT; the errors of the driver
 */
export async function awaitTransfer<Summary>(transfer: Transfer<Summary>, options: WaitOptions, cleanUp: () => unknown): Promise<Summary> {
  try {
    return await transferOutcome(transfer, options);
  } catch (reason) {
    throw await abandon([transfer], reason, cleanUp);
  }
}

/**
 * Waits for a transfer, and rejects at once, with nothing done about the reads in flight:
 * {@link abandon} must follow.
 */
export async function transferOutcome<Summary>(transfer: Transfer<Summary>, options: WaitOptions): Promise<Summary> {
  const stop = deferred<never>();
  // Rejections are only looked at through the race below.
  stop.promise.catch(() => {});
  const timers: NodeJS.Timeout[] = [];
  const { signal, deadline, timeoutMs, totalBytes, onProgress } = options;
  const forget = onAbort(signal, () => signal && stop.reject(abortError(signal)));

  const tell = (bytes: number) => {
    try {
      onProgress?.({ bytes, totalBytes });
    } catch (thrown) {
      stop.reject(stoppedBy("onProgress threw", thrown));
    }
  };

  try {
    if (deadline !== undefined) {
      const late = () =>
        stop.reject(
          errorOf("ERR_TRANSFER_TIMEOUT", `${transfer.progressBytes()} of ${totalBytes} bytes were in place after ${timeoutMs} ms`, {
            facts: { timeoutMs, bytes: transfer.progressBytes(), totalBytes },
          }),
        );
      timers.push(setTimeout(late, Math.max(0, deadline - performance.now())));
    }
    if (onProgress !== undefined) timers.push(setInterval(() => tell(transfer.progressBytes()), progressIntervalMs));
    const summary = await Promise.race([stop.promise, transfer.done]);
    if (onProgress !== undefined) {
      tell(totalBytes);
      await Promise.race([stop.promise, Promise.resolve()]);
    }
    await keepingAlive(transfer.settled);
    return summary;
  } finally {
    for (const timer of timers) clearTimeout(timer);
    forget();
  }
}

/**
 * Aborts transfers that nobody wants any more. `cleanUp` runs once nothing of them is in flight;
 * what it throws is published, so that it hides nothing. Resolves to `reason`, with `settled` where
 * it is an error of ours, within a grace of 100 ms.
 */
export async function abandon(transfers: readonly Transfer<unknown>[], reason: unknown, cleanUp: () => unknown): Promise<unknown> {
  for (const transfer of transfers) {
    transfer.abort();
    transfer.done.catch(() => {});
  }
  const settled = Promise.all(transfers.map((transfer) => transfer.settled))
    .then(async () => {
      await cleanUp();
    })
    .catch((error) => publish({ event: "transfer.clean-up-failed", error, after: reason }));
  await within(settled, graceMs);
  return withSettled(reason, settled);
}

/** Waits for a promise, but no longer than so many milliseconds. True when it resolved. */
export async function within(promise: Promise<unknown>, ms: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<boolean>((resolve) => {
    timer = setTimeout(resolve, ms, false);
  });
  try {
    return await Promise.race([promise.then(() => true), late]);
  } finally {
    clearTimeout(timer);
  }
}
