import { VmmArena } from "../arena/arena.js";
import { hostBackend } from "../arena/host-backend.js";
import { callNative } from "../native/failure.js";

/** Loads above this give their pages back on a native thread. */
const slowBytes = 64 * 2 ** 20;

/** The memory of one load: an allocation of the caller's arena, or an arena of its own that reserves just what the plan needs. */
export class LoadMemory {
  readonly arena: VmmArena;
  /** Address that the plan's offsets count from. */
  readonly base: bigint;
  readonly #owned: boolean;
  readonly #allocated: boolean;
  readonly #bytes: number;

  /** @throws ERR_ARENA_RESERVE_REFUSED, ERR_ARENA_OUT_OF_MEMORY, ERR_ARENA_EXHAUSTED, ERR_ARENA_CLOSED */
  constructor(arena: VmmArena | undefined, bytes: number) {
    this.#owned = arena === undefined;
    this.#allocated = bytes > 0;
    this.#bytes = bytes;
    this.arena = arena ?? new VmmArena({ backend: hostBackend(), totalBytes: Math.max(bytes, 1) });
    try {
      this.base = this.#allocated ? this.arena.malloc(bytes) : this.arena.base;
    } catch (error) {
      this.#closeQuietly();
      throw error;
    }
  }

  /**
   * Detaches all views and gives the memory back. Once nothing is in flight, it can be called again without effect. The pages of a large load go on
   * a native thread first: giving back a gigabyte takes some ten milliseconds.
   * @throws ERR_ARENA_BUSY while a transfer or a registration uses the memory: nothing is given back then
   */
  async release(): Promise<void> {
    if (this.arena.closed) return;
    if (this.#owned) {
      if (this.#allocated && this.#bytes > slowBytes) {
        const { native } = this.arena;
        const dropping = callNative(() => native.dropPages(this.base, this.#bytes));
        this.arena.detachViews(this.base);
        await dropping.catch(() => {}); // Then the pages go with the arena.
      }
      this.arena.close();
    } else if (this.#allocated) {
      this.arena.free(this.base);
    }
  }

  /** The failure that led here goes up; one of the close is published as an event. */
  #closeQuietly(): void {
    try {
      if (this.#owned) this.arena.close();
    } catch {}
  }
}
