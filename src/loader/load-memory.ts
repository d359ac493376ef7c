import { VmmArena } from "../arena/arena.js";
import { hostBackend } from "../arena/host-backend.js";

/** The memory of one load: an allocation of the caller's arena, or an arena of its own that reserves just what the plan needs. */
export class LoadMemory {
  readonly arena: VmmArena;
  /** Address that the plan's offsets count from. */
  readonly base: bigint;
  readonly #owned: boolean;
  readonly #allocated: boolean;

  /** @throws ERR_ARENA_RESERVE_REFUSED, ERR_ARENA_OUT_OF_MEMORY, ERR_ARENA_EXHAUSTED, ERR_ARENA_CLOSED */
  constructor(arena: VmmArena | undefined, bytes: number) {
    this.#owned = arena === undefined;
    this.#allocated = bytes > 0;
    this.arena = arena ?? new VmmArena({ backend: hostBackend(), totalBytes: Math.max(bytes, 1) });
    try {
      this.base = this.#allocated ? this.arena.malloc(bytes) : this.arena.base;
    } catch (error) {
      if (this.#owned) this.arena.close();
      throw error;
    }
  }

  /** Detaches all views and gives the memory back. Once nothing is in flight, it can be called again without effect. */
  release(): void {
    if (this.#owned) this.arena.close();
    else if (this.#allocated && !this.arena.closed) this.arena.free(this.base);
  }
}
