import { hasCode, ModelExpressError } from "../errors.js";
import type { NativeArena, NativeBackend } from "../native/addon.js";
import { callNative, fromNative } from "../native/failure.js";
import { addon } from "../native/load.js";
import type { ArenaMemory } from "./arena-memory.js";
import { publishReleaseFailure, type ReleaseFailure } from "./release-failure.js";

/**
 * Memory of a native backend. It lives until the last of arena, views and transfers is gone, and is
 * given back then, so nothing has to be closed when the arena becomes unreachable; only failures of
 * that go unheard.
 */
export class NativeMemory implements ArenaMemory {
  readonly native: NativeArena;
  readonly busy = false;
  /** Frees under way on native threads. */
  readonly #freeing = new Set<Promise<void>>();

  /** @throws what the backend throws at a reserve */
  constructor(backend: NativeBackend, totalBytes: number) {
    this.native = callNative(() => addon().createArena(backend, totalBytes));
  }

  malloc(bytes: number): bigint {
    return callNative(() => this.native.malloc(bytes));
  }

  free(address: bigint): Promise<void> | undefined {
    let freed: Promise<void> | null = null;
    try {
      freed = this.native.free(address);
    } catch (thrown) {
      this.#publishUnlessBusy(address, thrown);
    }
    if (freed === null) return undefined;
    const freeing = freed.catch((thrown) => this.#publishUnlessBusy(address, thrown)).finally(() => this.#freeing.delete(freeing));
    this.#freeing.add(freeing);
    return freeing;
  }

  async freeInBackground(address: bigint): Promise<void> {
    await this.free(address);
  }

  close(): ReleaseFailure[] | Promise<ReleaseFailure[]> | null {
    const closed = callNative(() => this.native.close());
    if (closed instanceof Promise) return this.#afterAll(closed);
    return closed === null ? null : this.#failures(closed);
  }

  async closeInBackground(): Promise<ReleaseFailure[] | null> {
    const failures = await this.close();
    await Promise.all(this.#freeing);
    return failures;
  }

  async #afterAll(closing: Promise<string[]>): Promise<ReleaseFailure[]> {
    try {
      const failures = await closing;
      await Promise.all(this.#freeing);
      return this.#failures(failures);
    } catch (thrown) {
      return doneHere(thrown) ? [] : [this.#failureOf(fromNative(thrown), this.native.base)];
    }
  }

  /** Of a free: what is not refused was done, and failed. */
  #publishUnlessBusy(address: bigint, thrown: unknown): void {
    if (doneHere(thrown)) return;
    const error = fromNative(thrown);
    if (!(error instanceof ModelExpressError) || hasCode(error, "ERR_ARENA_BUSY")) throw error;
    publishReleaseFailure("free", this.#failureOf(error, address));
  }

  #failures(thrown: readonly string[]): ReleaseFailure[] {
    return thrown.map((failure) => this.#failureOf(fromNative(failure), this.native.base));
  }

  /**
   * The native half says itself which piece could not be given back; where it does not, it is the
   * arena's.
   */
  #failureOf(error: unknown, otherwise: bigint): ReleaseFailure {
    const { address, length } = error as { readonly address?: string; readonly length?: number };
    return { address: address === undefined ? otherwise : BigInt(address), bytes: length ?? this.native.totalBytes, error };
  }
}

/** True where no thread could be had: memory is given back on this one then. */
function doneHere(thrown: unknown): boolean {
  return hasCode(fromNative(thrown), "ERR_TRANSFER_NO_THREAD");
}
