import type { NativePin } from "../native/addon.js";
import type { Uses } from "./uses.js";

/**
 * Memory of a model that somebody works with: `close()` waits until it is given back. Give it back with `release()`, or by `using`. It keeps the
 * model reachable, and its views whole: closing the arena meanwhile is ERR_ARENA_BUSY.
 */
export class Borrow implements Disposable {
  #held: { readonly model: object; readonly end: () => void; readonly pin: NativePin | undefined } | undefined;

  /** @internal */
  constructor(model: object, uses: Uses, pin: NativePin | undefined) {
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
}
