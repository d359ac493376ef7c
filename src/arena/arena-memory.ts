import type { NativeArena } from "../native/addon.js";
import type { ReleaseFailure } from "./release-failure.js";

/**
 * The two ways an arena reaches its memory: natively, or through a backend written in JavaScript. Holds no reference to the arena, so that
 * it can be closed once the arena is unreachable. Failures of the native half are errors of the class tree already.
 *
 * JavaScript can be torn away at any call, by the end of its stack or of its thread. So nothing that the native half has begun waits for another call:
 * what was taken out is given back in the same one, or can be found by the next.
 */
export interface ArenaMemory {
  readonly native: NativeArena;
  /** True while a call of the backend runs. */
  readonly busy: boolean;
  /** One more allocation; ERR_ARENA_EXHAUSTED, ERR_ARENA_CLOSED, or what the backend throws. */
  malloc(bytes: number): bigint;
  /**
   * Detaches the views of the allocation that starts at this address and gives its memory back; publishes what the backend throws then. Nothing where
   * there is none. ERR_ARENA_BUSY while pinned, and then changes nothing.
   */
  free(address: bigint): void;
  /** The same, the memory given back on a native thread where the backend is native. */
  freeInBackground(address: bigint): Promise<void>;
  /**
   * Refuses new work, detaches all views, gives every allocation back once, going on after errors, then the reserve. All failures, in order; null when closed
   * before. ERR_ARENA_BUSY while anything is pinned, allocated or freed: it then stays open.
   */
  close(): ReleaseFailure[] | null;
  /**
   * Begins a close whose memory is given back on a native thread: refusals are thrown, all else is done at once but that. Undefined where `close()` is to be
   * called: the memory is soon given back, it is JavaScript that gives it back, or the arena is closed.
   */
  beginSlowClose(): Promise<ReleaseFailure[]> | undefined;
  /** The same, the memory given back on a native thread where the backend is native. */
  closeInBackground(): Promise<ReleaseFailure[] | null>;
}
