import { addon } from "../native/load.js";
import { AddonBackend } from "./native-backend.js";
import type { VmmBackend } from "./vmm-backend.js";

/**
 * Host memory: one reserved range without access and without memory, anonymous memory mapped into
 * it in huge pages where the kernel has them. Granularity 2 MiB, or a page where that is more.
 * Memory that was given back keeps its addresses. One object serves any number of arenas; an arena
 * over it does its work natively. Errors: ERR_ARENA_RESERVE_REFUSED, ERR_ARENA_OUT_OF_MEMORY,
 * ERR_ARENA_RELEASE_FAILED; ERR_ARENA_ADDRESS for a range that this object has not reserved.
 */
export function hostBackend(): VmmBackend {
  return new AddonBackend("host", "host", () => addon().openHostBackend());
}
