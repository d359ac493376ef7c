import { custom, shownAs } from "../inspection.js";
import type { NativePin } from "../native/addon.js";
import { formatBytes } from "../units.js";
import type { Uses } from "./uses.js";

/** What is borrowed, as far as it is shown. */
interface Borrowed {
  readonly checkpoint: { readonly path: string };
  readonly plan: { readonly totals: { readonly bytes: number } };
}

/**
 * Memory of a model that somebody works with: `close()` waits until it is given back. Give it back
 * with `release()`, or by `using`. It keeps the model reachable, and its views whole: closing the
 * arena meanwhile is ERR_ARENA_BUSY.
 */
export class Borrow implements Disposable {
  /**
   * @internal A function among the fields: `structuredClone` and `postMessage` refuse it, and quote
   *   it, instead of giving an empty object.
   */
  readonly cannotBeCloned = () => "A Borrow stays in its thread: what it keeps in place";
  readonly #path: string;
  readonly #byteLength: number;
  #held: { readonly model: object; readonly end: () => void; readonly pin: NativePin | undefined } | undefined;

  /** @internal */
  constructor(model: Borrowed, uses: Uses, pin: NativePin | undefined) {
    this.#path = model.checkpoint.path;
    this.#byteLength = model.plan.totals.bytes;
    this.#held = { model, end: uses.begin(), pin };
  }

  get released(): boolean {
    return this.#held === undefined;
  }

  /** Gives the memory back. A second call does nothing. */
  release(): void {
    this.#held?.pin?.release();
    this.#held?.end();
    this.#held = undefined;
  }

  [Symbol.dispose](): void {
    this.release();
  }

  /** What is borrowed, and whether it still is. */
  toJSON(): { path: string; byteLength: number; released: boolean } {
    return { path: this.#path, byteLength: this.#byteLength, released: this.released };
  }

  /** @internal A short form for `util.inspect`. */
  [custom](depth: number, options: object): string {
    const { path, byteLength, released } = this.toJSON();
    return shownAs("Borrow", { path, bytes: formatBytes(byteLength), released }, depth, options);
  }
}
