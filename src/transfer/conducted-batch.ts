import { errorOf } from "../errors.js";
import { publish } from "../events.js";
import { deferred } from "./deferred.js";
import type { Transfer } from "./driver.js";

/**
 * A batch that is conducted here, from parts in flight. Its first failure is told at once and stops
 * the parts; `settled` follows when the conduct has ended, which gives back what it took.
 */
export abstract class ConductedBatch<Summary> implements Transfer<Summary> {
  readonly done: Promise<Summary>;
  readonly settled: Promise<void>;
  readonly #done = deferred<Summary>();
  readonly #settled = deferred<void>();
  readonly #parts = new Set<{ abort(): void }>();
  #failure: { readonly error: unknown } | undefined;

  constructor() {
    this.done = this.#done.promise;
    this.done.catch(() => {});
    this.settled = this.#settled.promise;
  }

  abstract progressBytes(): number;

  abort(): void {
    this.fail(errorOf("ERR_TRANSFER_ABORTED", "the reads were stopped"));
  }

  /**
   * Starts the conduct. It resolves when nothing is in flight, to the summary where there was no
   * failure.
   */
  protected conduct(work: Promise<Summary | undefined>): void {
    work
      .then(
        (summary) => summary !== undefined && this.#done.resolve(summary),
        (error) => this.fail(error),
      )
      .then(() => this.#settled.resolve());
  }

  protected get failed(): boolean {
    return this.#failure !== undefined;
  }

  protected fail(error: unknown): void {
    if (this.#failure !== undefined) return;
    this.#failure = { error };
    this.#done.reject(error);
    for (const part of this.#parts) part.abort();
    this.onFailure();
  }

  /** A clean-up that fails is the failure of the batch only when there was none before. */
  protected failCleanUp(error: unknown): void {
    if (this.#failure !== undefined) publish({ event: "transfer.clean-up-failed", error, after: this.#failure.error });
    this.fail(error);
  }

  /** Called once, at the first failure. */
  protected onFailure(): void {}

  /** A failure stops this part from now on, until {@link forget}. */
  protected follow<Part extends { abort(): void }>(part: Part): Part {
    this.#parts.add(part);
    return part;
  }

  protected forget(part: { abort(): void }): void {
    this.#parts.delete(part);
  }
}
