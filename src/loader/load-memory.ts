import { type Allocation, release } from "../arena/allocation.js";
import type { VmmArena } from "../arena/arena.js";
import type { Keeper } from "../arena/kept-pages.js";
import { callNative } from "../native/failure.js";

/** Loads above this give their pages back on a native thread. */
const slowBytes = 64 * 2 ** 20;

/** The memory of one load: an allocation of the caller's arena, or an arena of its own that reserves just what the plan needs. */
export class LoadMemory {
  readonly #allocation: Allocation;
  readonly #keeper: Keeper | undefined;
  #kept = false;

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
    this.#kept = this.#keeper !== undefined;
  }

  get arena(): VmmArena {
    return this.#allocation.arena;
  }

  /** Address that the plan's offsets count from. */
  get base(): bigint {
    return this.#allocation.address;
  }

  /**
   * Detaches all views and gives the memory back. Once nothing is in flight, it can be called again without effect. The pages of a large load go on
   * a native thread first: giving back a gigabyte takes some ten milliseconds.
   * @throws ERR_ARENA_BUSY while a transfer or a registration uses the memory: nothing is given back then
   */
  async release(): Promise<void> {
    const { arena, address, bytes, own } = this.#allocation;
    if (arena.closed) return;
    if (own && !this.#kept && arena.nativeHost && bytes > slowBytes) {
      const dropping = callNative(() => arena.native.dropPages(address, bytes));
      arena.detachViews(address);
      await dropping.catch(() => {}); // Then the pages go with the arena.
    }
    release(this.#allocation);
  }
}
