import { errorOf } from "../errors.js";
import { publish } from "../events.js";
import { addonPath } from "../native/addon-path.js";
import { callNative, fromNative } from "../native/failure.js";
import { addon } from "../native/load.js";
import { addressText } from "../plain-data.js";
import { VmmArena } from "./arena.js";
import { cudaDeviceNumber } from "./cuda-backend.js";

/**
 * Path of the native addon, a shared library that exports to C, with the signatures of a pluggable
 * GPU allocator:
 * ```c
 * void *mx_malloc(ssize_t size, int device, void *stream);
 * void mx_free(void *address, ssize_t size, int device, void *stream);
 * ```
 * Both act on the process's active arena, from any thread. `device` is the number of a CUDA device,
 * -1 for the host; `stream` is not looked at. `mx_malloc` gives null where there is no active
 * arena, for another device than the arena's, and where the arena refuses; `mx_free` of an address
 * that the active arena does not know does nothing. Memory that is registered, that a transfer uses
 * or that JavaScript has views of is freed with the last of them.
 */
export const nativeLibraryPath = addonPath();

/** C allocates in it, so it is not collected. */
let active: VmmArena | null = null;

/**
 * Makes `arena` the one that `mx_malloc` and `mx_free` act on, for the whole process, whatever
 * thread sets it; null ends that, and has to come between two arenas. Calls that run meanwhile end
 * in the arena they began with. The arena stays open and reachable, and what C got from it stays
 * valid until the arena is closed; a closed arena gives null.
 *
 * What C callers are not told is published as `arena.c-call-failed`: each code of a refused
 * `mx_malloc` once, and every `mx_free` that failed.
 *
 * An arena over a backend written in JavaScript can be called on its own thread only, so that C
 * gets null; `arena.active-unusable` says so.
 * @throws ERR_OPTION_INVALID when it is no arena; ERR_ARENA_CLOSED; ERR_ARENA_ACTIVE while another
 *   arena is active that is open: set null first
 */
export function setActiveArena(arena: VmmArena | null): void {
  if (arena !== null && !(arena instanceof VmmArena)) {
    throw errorOf("ERR_OPTION_INVALID", "setActiveArena(arena) takes a VmmArena, or null", { facts: { option: "arena" } });
  }
  if (arena?.closed) {
    throw errorOf("ERR_ARENA_CLOSED", `setActiveArena: the arena at ${addressText(arena.base)} is closed: make a new one`);
  }
  if (arena !== null && active !== null && active !== arena && !active.closed) {
    throw errorOf("ERR_ARENA_ACTIVE", `another arena is active, at ${addressText(active.base)}: end that by setting null first`);
  }
  const usable = arena?.nativeMemory ? arena : null;
  if (arena !== null && usable === null) callNative(() => addon().requireNoActiveArena());
  callNative(() => addon().setActiveArena(usable?.native, usable && cudaDeviceNumber(usable.device), reportFailure));
  active = arena;
  if (arena === null) return;
  const facts = { address: addressText(arena.base), device: arena.device };
  if (usable === null) {
    const message =
      "the arena's backend is written in JavaScript, which runs on one thread: mx_malloc gives null; use cudaBackend() or hostBackend()";
    publish({ event: "arena.active-unusable", ...facts, message });
  } else publish({ event: "arena.active", ...facts });
}

/** The arena that this JavaScript thread set last. */
export function activeArena(): VmmArena | null {
  return active;
}

function reportFailure(operation: string, failure: string): void {
  const error = fromNative(failure);
  publish({ event: "arena.c-call-failed", operation, message: error instanceof Error ? error.message : failure, error });
}
