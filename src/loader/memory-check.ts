import { type Keeper, keptPageBytes, releaseKeptPages } from "../arena/kept-pages.js";
import { publish } from "../events.js";
import { availableBeside, MemoryClaim } from "../plan/claims.js";
import type { LoadPlan } from "../plan/load-plan.js";
import { assertFits, heldAgainst, type PlanMemory, whyNot } from "../plan/memory.js";
import { readAvailableMemory } from "../probe/memory.js";

/** Whether a load that does not fit the memory there is, is refused. */
export const memoryChecks = ["enforce", "ignore"] as const;
export type MemoryCheck = (typeof memoryChecks)[number];

/** What is checked: the plan's own memory, or that of a stream's slots. */
export interface Checked extends Pick<LoadPlan, "device" | "checkpoint"> {
  readonly memory: PlanMemory;
}

/**
 * Claims what a plan takes of the host, in the turn in which its memory was asked for. Of loads
 * that begin at one time, each sees the claims made before its own.
 * @throws ERR_MEMORY_WOULD_NOT_FIT, with nothing claimed
 */
export function claimMemory(checked: Checked, check: MemoryCheck): MemoryClaim {
  const { device, checkpoint, memory } = checked;
  if (check === "enforce") assertFits(checked);
  else if (!memory.fits) publish({ event: "load.memory-check-ignored", path: checkpoint.path, reason: whyNot(memory, device) });
  const claim = new MemoryClaim((device === "host" ? memory.requiredBytes : 0) + memory.slackBytes);
  if (check === "ignore" || claim.claimedBefore === 0) return claim;
  try {
    assertFits({ device, checkpoint, memory: heldAgainst(memory, device, availableBeside(claim.claimedBefore)) });
    return claim;
  } catch (error) {
    claim.release();
    throw error;
  }
}

/**
 * Gives back of the kept pages what a load needs and does not take over: they are counted as
 * available. Without any kept it does nothing.
 * @param keeper of a load that takes them over, as far as its tensors go
 */
export async function makeRoom({ device, memory }: Checked, keeper: Keeper | undefined): Promise<void> {
  const keptBytes = keptPageBytes();
  if (keptBytes === 0) return;
  const { bytes } = readAvailableMemory();
  const onHost = device === "host" ? memory.requiredBytes : 0;
  const takenBytes = keeper === undefined ? 0 : Math.min(keptBytes, onHost);
  const missingBytes = onHost + memory.slackBytes - takenBytes - (bytes ?? Number.POSITIVE_INFINITY);
  if (missingBytes > 0) await releaseKeptPages(missingBytes);
}
