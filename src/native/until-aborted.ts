import { onAbort } from "../aborts.js";
import type { NativeStop } from "./addon.js";
import { awaitNative } from "./failure.js";
import { addon } from "./load.js";

/**
 * Awaits an asynchronous call of the addon that takes a stop, until `signal` aborts: from then on
 * nothing waits for the call, the event loop neither.
 * @throws ERR_ABORTED, and what the call rejects with
 */
export async function awaitUntilAborted<T>(signal: AbortSignal | undefined, call: (stop?: NativeStop) => Promise<T>): Promise<T> {
  if (signal === undefined) return awaitNative(call);
  const stop = new (addon().NativeStop)();
  const calling = awaitNative(() => call(stop));
  const forget = onAbort(signal, () => stop.stop());
  try {
    return await calling;
  } finally {
    forget();
  }
}
