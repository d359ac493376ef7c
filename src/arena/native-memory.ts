import { hasCode, ModelExpressError } from "../errors.js";
import type { NativeArena, NativeBackend } from "../native/addon.js";
import { awaitNative, callNative, fromNative } from "../native/failure.js";
import { addon } from "../native/load.js";
import type { ArenaMemory } from "./arena-memory.js";
import { publishReleaseFailure, type ReleaseFailure } from "./release-failure.js";

/** Memory of the host beyond this is given back on a native thread: a gigabyte takes some ten milliseconds. A device's always is. */
export const soonBytes = 64 * 2 ** 20;

/**
 * Memory of a native backend. It lives until the last of arena, views and transfers is gone, and is given back then, so nothing has to be
 * closed when the arena becomes unreachable; only failures of that go unheard.
 */
export class NativeMemory implements ArenaMemory {
  readonly native: NativeArena;
  readonly busy = false;
  readonly #onHost: boolean;

  /** @throws what the backend throws at a reserve */
  constructor(backend: NativeBackend, totalBytes: number, onHost: boolean) {
    this.#onHost = onHost;
    this.native = callNative(() => addon().createArena(backend, totalBytes));
  }

  malloc(bytes: number): bigint {
    return callNative(() => this.native.malloc(bytes));
  }

  free(address: bigint): void {
    try {
      this.native.free(address);
    } catch (thrown) {
      this.#publishUnlessBusy(address, thrown);
    }
  }

  async freeInBackground(address: bigint): Promise<void> {
    try {
      await this.native.freeInBackground(address);
    } catch (thrown) {
      this.#publishUnlessBusy(address, thrown);
    }
  }

  close(): ReleaseFailure[] | null {
    return this.#failures(callNative(() => this.native.close()));
  }

  beginSlowClose(): Promise<ReleaseFailure[]> | undefined {
    const { mappedBytes, closed } = this.native;
    if (closed || (this.#onHost && mappedBytes <= soonBytes)) return undefined;
    const closing = callNative(() => this.native.closeInBackground());
    return closing.then(
      (failures) => this.#failures(failures) ?? [],
      // Where no thread could be had it was done on this one.
      (thrown) => (hasCode(fromNative(thrown), "ERR_TRANSFER_NO_THREAD") ? [] : [this.#failureOf(fromNative(thrown), this.native.base)]),
    );
  }

  async closeInBackground(): Promise<ReleaseFailure[] | null> {
    return this.#failures(await awaitNative(() => this.native.closeInBackground()));
  }

  /** Of a free: what is not refused was done, and failed. */
  #publishUnlessBusy(address: bigint, thrown: unknown): void {
    const error = fromNative(thrown);
    if (!(error instanceof ModelExpressError) || hasCode(error, "ERR_ARENA_BUSY")) throw error;
    publishReleaseFailure("free", this.#failureOf(error, address));
  }

  #failures(thrown: readonly string[] | null): ReleaseFailure[] | null {
    return thrown?.map((failure) => this.#failureOf(fromNative(failure), this.native.base)) ?? null;
  }

  /** The native half says itself which piece could not be given back; where it does not, it is the arena's. */
  #failureOf(error: unknown, otherwise: bigint): ReleaseFailure {
    const { address, length } = error as { readonly address?: string; readonly length?: number };
    return { address: address === undefined ? otherwise : BigInt(address), bytes: length ?? this.native.totalBytes, error };
  }
}
