import { type Allocation, type AllocationRequest, allocate, releaseInBackground } from "../arena/allocation.js";
import { abortable } from "../checkpoint/abortable.js";
import { before, type Limits } from "./limits.js";
import { abandon } from "./waiting.js";

/**
 * An allocation, no longer than until the deadline. One that comes later is given back; the error's
 * `settled` tells when.
 * @throws what `allocate` throws; ERR_TRANSFER_TIMEOUT; ERR_ABORTED
 */
export async function allocateBefore(limits: Limits, request: AllocationRequest): Promise<Allocation> {
  const allocating = allocate(request);
  try {
    return await before(limits, `the memory on ${request.device} was not allocated`, (signal) => abortable(allocating, signal));
  } catch (reason) {
    throw await abandon([], reason, () => allocating.then(releaseInBackground, () => {}));
  }
}
