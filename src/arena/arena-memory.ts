import type { NativeArena } from "../native/addon.js";

/**
 * The two ways an arena reaches its memory: natively, or through a backend written in JavaScript. Holds no reference to the arena, so that
 * it can be closed once the arena is unreachable. Failures of the native half are errors of the class tree already.
 */
export interface ArenaMemory {
  readonly native: NativeArena;
  /** True while a call of the backend runs. */
  readonly busy: boolean;
  /** One more allocation; ERR_ARENA_EXHAUSTED, ERR_ARENA_CLOSED, or what the backend throws. */
  malloc(bytes: number): bigint;
  /** Takes an allocation out of the records: false when there is none at this address. ERR_ARENA_BUSY while pinned. `giveBack` must follow. */
  take(address: bigint): boolean;
  /** Gives the memory of what was taken back; throws what the backend throws. */
  giveBack(): void;
  /** Refuses new work and waits for what is in flight: false when closed before. ERR_ARENA_BUSY while pinned; it then stays open. */
  beginClose(): boolean;
  /** Must follow `beginClose`: gives every allocation back once, going on after errors, then the reserve. All errors, in order. */
  finishClose(): unknown[];
}
