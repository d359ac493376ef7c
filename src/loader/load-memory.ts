import { type Allocation, releaseInBackground } from "../arena/allocation.js";
import type { VmmArena } from "../arena/arena.js";
import type { Keeper } from "../arena/kept-pages.js";

/**
 * The memory of one load: an allocation of the caller's arena, or an arena of its own that reserves
 * just what the plan needs.
 */
export class LoadMemory {
  readonly #allocation: Allocation;
  readonly #keeper: Keeper | undefined;

  constructor(allocation: Allocation, keeper?: Keeper) {
    this.#allocation = allocation;
    this.#keeper = keeper;
  }

  /** Bytes that came out of kept pages. */
  get takenPageBytes(): number {
    return this.#keeper?.takenBytes() ?? 0;
  }

  /** Says that the memory is filled: where its pages are to be kept, they are from now on. */
  filled(): void {
    this.#keeper?.keep();
  }

  get arena(): VmmArena {
    return this.#allocation.arena;
  }

  /** Address that the plan's offsets count from. */
  get base(): bigint {
    return this.#allocation.address;
  }

  /**
   * Detaches all views and gives the memory back. Once nothing is in flight, it can be called again
   * without effect. What may take long, large memory and a device's, is given back on a native
   * thread.
   * @throws ERR_ARENA_BUSY while a transfer or a registration uses the memory: nothing is given
   *   back then
   */
  async release(): Promise<void> {
    if (!this.arena.closed) await releaseInBackground(this.#allocation);
  }
}
