import { constants } from "node:buffer";
import { errorOf } from "../errors.js";
import { addon } from "../native/load.js";

/** References are swept when there are twice as many as the last sweep left, and never fewer than this. */
const sweepMinimum = 64;

/** Views over memory that will go away before they do. Holds them weakly; a view costs constant time, sweeps included. */
export class ViewSet {
  #references: WeakRef<ArrayBuffer>[] = [];
  #sweepAt = sweepMinimum;

  /** A view of `length` bytes at `address`, remembered here too; see {@link VmmArena.view}. */
  view(arena: { view(address: bigint, length: number): ArrayBuffer }, address: bigint, length: number): ArrayBuffer {
    const buffer = arena.view(address, length);
    this.add(buffer);
    return buffer;
  }

  add(buffer: ArrayBuffer): void {
    if (this.#references.length >= this.#sweepAt) {
      this.#references = this.#references.filter((reference) => reference.deref() !== undefined);
      this.#sweepAt = Math.max(sweepMinimum, 2 * this.#references.length);
    }
    this.#references.push(new WeakRef(buffer));
  }

  /** Ends the life of every view that is still around: its length becomes 0. */
  detachAll(): void {
    for (const reference of this.#references) {
      const buffer = reference.deref();
      if (buffer !== undefined && buffer.byteLength > 0) addon().detach(buffer);
    }
    this.#references = [];
    this.#sweepAt = sweepMinimum;
  }
}

/** @throws ERR_TENSOR_VIEW_TOO_LARGE beyond what an ArrayBuffer of this Node version holds */
export function requireViewLength(length: number): void {
  if (length <= constants.MAX_LENGTH) return;
  throw errorOf(
    "ERR_TENSOR_VIEW_TOO_LARGE",
    `a view of ${length} bytes is longer than the ${constants.MAX_LENGTH} bytes that Node ${process.versions.node} allows: take parts`,
    { facts: { length, maxBytes: constants.MAX_LENGTH } },
  );
}
