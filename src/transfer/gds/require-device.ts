import type { VmmArena } from "../../arena/arena.js";
import { errorOf } from "../../errors.js";
import { memoryOf } from "../nixl/agent.js";

/**
 * @throws ERR_OPTION_CONFLICT when the arena is on another device; ERR_ARENA_NOT_LOADABLE for
 *   memory that NIXL cannot use
 */
export function requireDevice(device: string, arena: VmmArena): void {
  memoryOf(arena);
  const found = arena.memory === "host" ? "host" : arena.device;
  if (found === device) return;
  throw errorOf("ERR_OPTION_CONFLICT", `the arena to load into is on ${found}, the manager reads to ${device}`, {
    facts: { option: "into", device: found },
  });
}
