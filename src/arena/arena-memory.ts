import type { NativeArena } from "../native/addon.js";
import type { ReleaseFailure } from "./release-failure.js";

/**
 * The two ways an arena reaches its memory: natively, or through a backend written in JavaScript.
 * Holds no reference to the arena, so that it can be closed once the arena is unreachable. Failures
 * of the native half are errors of the class tree already.
 *
 * JavaScript can be torn away at any call, by the end of its stack or of its thread. So nothing
 * that the native half has begun waits for another call: what was taken out is given back in the
 * same one, or can be found by the next.
 */
export interface ArenaMemory {
  readonly native: NativeArena;
  /** True while a call of the backend runs. */
  readonly busy: boolean;
  /** One more allocation; ERR_ARENA_EXHAUSTED, ERR_ARENA_CLOSED, or what the backend throws. */
  malloc(bytes: number): bigint;
  /**
   * Detaches the views of the allocation that starts at this address and gives its memory back;
   * publishes what the backend throws then. Nothing where there is none. A promise where memory is
   * given back on a native thread. ERR_ARENA_BUSY while pinned, and then changes nothing.
   */
  free(address: bigint): Promise<void> | undefined;
  /** The same, resolved when the memory is back; refusals that end by themselves are waited for. */
  freeInBackground(address: bigint): Promise<void>;
  /**
   * Refuses new work, detaches all views, gives every allocation back once, going on after errors,
   * then the reserve. All failures, in order; null when closed before. A promise where memory is
   * given back on a native thread. ERR_ARENA_BUSY while anything is pinned or allocated: it then
   * stays open.
   */
  close(): ReleaseFailure[] | Promise<ReleaseFailure[]> | null;
  /**
   * The same, resolved when all memory is back, that of frees before it too; refusals that end by
   * themselves are waited for.
   */
  closeInBackground(): Promise<ReleaseFailure[] | null>;
}
