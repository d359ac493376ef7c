import { Checkpoint } from "../checkpoint/checkpoint.js";
import { type OpenCheckpointOptions, openCheckpoint } from "../checkpoint/open.js";
import { errorOf } from "../errors.js";

/**
 * A checkpoint, opened unless it is open already, no longer than until the deadline.
 * @param deadline a point of `performance.now()`; undefined for never
 * @throws what `openCheckpoint` throws; ERR_TRANSFER_TIMEOUT
 */
export async function openBefore(
  source: string | URL | Checkpoint,
  { weights, signal }: OpenCheckpointOptions,
  deadline: number | undefined,
  timeoutMs: number,
): Promise<Checkpoint> {
  if (source instanceof Checkpoint) return source;
  if (deadline === undefined) return await openCheckpoint(source, { weights, signal });
  const late = new AbortController();
  const timer = setTimeout(
    () =>
      late.abort(
        errorOf("ERR_TRANSFER_TIMEOUT", `the headers of the checkpoint were not read after ${timeoutMs} ms`, { facts: { timeoutMs } }),
      ),
    Math.max(0, deadline - performance.now()),
  );
  try {
    return await openCheckpoint(source, { weights, signal: signal === undefined ? late.signal : AbortSignal.any([signal, late.signal]) });
  } finally {
    clearTimeout(timer);
  }
}
