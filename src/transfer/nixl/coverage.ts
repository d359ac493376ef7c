import { entryOf } from "../../columns.js";
import type { Pieces } from "./descriptors.js";

/** Finds out in logarithmic time whether one piece of many holds a range. */
export class Coverage {
  /** Ascending. */
  readonly #begin: BigUint64Array;
  /** Largest end of the pieces up to this one. */
  readonly #end: BigUint64Array;

  constructor({ address, length }: Pieces) {
    const rows = Uint32Array.from(address, (_, row) => row);
    const at = (row: number) => entryOf(address, row);
    if (address.some((begin, row) => row > 0 && begin < at(row - 1))) {
      rows.sort((a, b) => (at(a) < at(b) ? -1 : at(a) > at(b) ? 1 : 0));
    }
    this.#begin = BigUint64Array.from(rows, at);
    let furthest = 0n;
    this.#end = BigUint64Array.from(rows, (row) => {
      const end = at(row) + BigInt(entryOf(length, row));
      if (end > furthest) furthest = end;
      return furthest;
    });
  }

  /** True when the whole of `[address, address + length)` lies within one piece. */
  holds(address: bigint, length: number): boolean {
    let [low, high] = [0, this.#begin.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (entryOf(this.#begin, middle) <= address) low = middle + 1;
      else high = middle;
    }
    // Whichever of the pieces up to here reaches furthest begins no later than the range.
    return low > 0 && address + BigInt(length) <= entryOf(this.#end, low - 1);
  }
}
