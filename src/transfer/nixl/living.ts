import { setTimeout } from "node:timers/promises";
import type { VmmArena } from "../../arena/arena.js";
import type { NativeLiving } from "../../native/addon.js";
import { callNative } from "../../native/failure.js";

/** How long memory on its way is waited for. Unmapping a terabyte takes about so long. */
const patienceMs = 10_000;

/** What is alive in an arena now. */
export function livingOf(arena: VmmArena): NativeLiving {
  return callNative(() => arena.native.living());
}

/**
 * What is alive once no memory between is being allocated or given back, so that the holes stay
 * empty for ever. Where that takes too long, `holes` says so.
 */
export async function livingAtRest(arena: VmmArena): Promise<NativeLiving> {
  const deadline = performance.now() + patienceMs;
  let living = livingOf(arena);
  while (living.holes === "moving" && performance.now() < deadline) {
    await setTimeout(1);
    living = livingOf(arena);
  }
  return living;
}
