import { errorOf, hasCode } from "../errors.js";
import type { ArenaMemory } from "./arena-memory.js";
import { publishReleaseFailure } from "./release-failure.js";

/** How long to wait before memory that a transfer still uses is tried again. */
const retryMs = 250;

/** Closes the memory of arenas that became unreachable unclosed. */
export const closeUnreachable = new FinalizationRegistry<ArenaMemory>(closeMemory);

async function closeMemory(memory: ArenaMemory): Promise<void> {
  try {
    for (const failure of (await memory.closeInBackground()) ?? []) publishReleaseFailure("close", failure);
  } catch (error) {
    if (hasCode(error, "ERR_ARENA_BUSY")) setTimeout(closeMemory, retryMs, memory).unref();
    else {
      const failure = errorOf("ERR_INTERNAL", "an unreachable arena cannot be closed", { cause: error });
      publishReleaseFailure("close", { address: memory.native.base, bytes: memory.native.totalBytes, error: failure });
    }
  }
}
