import { Checkpoint } from "../checkpoint/checkpoint.js";
import { type OpenCheckpointOptions, openCheckpoint } from "../checkpoint/open.js";
import { before, type Limits } from "../transfer/limits.js";

/**
 * A checkpoint, opened unless it is open already, no longer than until the deadline.
 * @throws what `openCheckpoint` throws; ERR_TRANSFER_TIMEOUT
 */
export async function openBefore(
  source: string | URL | Checkpoint,
  { weights }: OpenCheckpointOptions,
  limits: Limits,
): Promise<Checkpoint> {
  if (source instanceof Checkpoint) return source;
  return before(limits, "the headers of the checkpoint were not read", (signal) => openCheckpoint(source, { weights, signal }));
}
