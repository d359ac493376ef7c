import { within } from "../transfer/waiting.js";

/**
 * What uses memory at the moment: copies, digests, borrows. The memory goes only after all of them
 * have ended.
 */
export class Uses {
  readonly #running = new Set<Promise<unknown>>();

  /** Counts as a use until the work has ended, well or not. Gives the work back. */
  during<T>(work: Promise<T>): Promise<T> {
    this.#running.add(work);
    const forget = () => this.#running.delete(work);
    work.then(forget, forget);
    return work;
  }

  /** Counts as a use until the function that it gives is called. */
  begin(): () => void {
    let end = () => {};
    this.during(
      new Promise<void>((resolve) => {
        end = resolve;
      }),
    );
    return end;
  }

  /**
   * Waits for what runs now, but no longer than so many milliseconds. True when nothing runs any
   * more.
   */
  async ended(timeoutMs = Number.POSITIVE_INFINITY): Promise<boolean> {
    if (this.#running.size === 0) return true;
    const all = Promise.allSettled(this.#running);
    if (timeoutMs !== Number.POSITIVE_INFINITY) return within(all, timeoutMs);
    await all;
    return true;
  }
}
