import type { VmmArena } from "../arena/arena.js";
import { onceTold } from "../arena/telling-turns.js";
import { hasCode } from "../errors.js";
import type { LoadMemory } from "./load-memory.js";

/** Where a window is read to: the whole memory, or one of the slots that windows take turns in. */
interface Slot {
  readonly arena: VmmArena;
  readonly base: bigint;
  /** Of a slot that was renewed: its own memory. */
  readonly own?: LoadMemory;
}

/**
 * The memory of one stream. Bytes that a loop has moved out of a view stay what they are: their
 * slot gets other memory.
 */
export class StreamMemory {
  readonly #memory: LoadMemory;
  readonly #slotBytes: number;
  readonly #allocate: (bytes: number) => Promise<LoadMemory>;
  readonly #slots: Slot[];
  /** Memory that could not be given back yet. */
  readonly #held: LoadMemory[] = [];

  /** @param turns what windows take turns in; undefined where each has a place of its own */
  constructor(
    memory: LoadMemory,
    turns: { readonly slotCount: number; readonly slotBytes: number } | undefined,
    allocate: (bytes: number) => Promise<LoadMemory>,
  ) {
    const { arena, base } = memory;
    this.#memory = memory;
    this.#allocate = allocate;
    this.#slotBytes = turns?.slotBytes ?? 0;
    this.#slots = Array.from({ length: turns?.slotCount ?? 1 }, (_, slot) => ({ arena, base: base + BigInt(slot * this.#slotBytes) }));
  }

  get takenPageBytes(): number {
    return this.#memory.takenPageBytes;
  }

  filled(): void {
    this.#memory.filled();
  }

  /** The slot of the window at this position. */
  at(position: number): Slot {
    return this.#slots[position % this.#slots.length] as Slot;
  }

  /**
   * Ends all views of the window's slot, which is to be filled anew, and gives it other memory
   * where bytes were moved out of one.
   */
  async renew(position: number): Promise<void> {
    const { arena, base, own } = this.at(position);
    const endViews = () => arena.endViews(base, this.#slotBytes);
    if (!(await onceTold(endViews, (moved) => moved))) return;
    if (own !== undefined) await this.#giveBack(own);
    const memory = await this.#allocate(this.#slotBytes);
    this.#slots[position % this.#slots.length] = { arena: memory.arena, base: memory.base, own: memory };
  }

  /**
   * Gives everything back. @throws ERR_ARENA_BUSY where memory was moved that its backend cannot
   * keep; the rest is given back then
   */
  async release(): Promise<void> {
    const all = [this.#memory, ...this.#slots.flatMap(({ own }) => own ?? []), ...this.#held];
    const ends = await Promise.allSettled(all.map((memory) => memory.release()));
    for (const end of ends) if (end.status === "rejected") throw end.reason;
  }

  async #giveBack(memory: LoadMemory): Promise<void> {
    try {
      await memory.release();
    } catch (error) {
      if (!hasCode(error, "ERR_ARENA_BUSY")) throw error;
      this.#held.push(memory);
    }
  }
}
