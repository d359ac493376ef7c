import { ModelExpressError } from "../errors.js";
import type { NativeArena, NativeBackend } from "../native/addon.js";
import { callNative, fromNative } from "../native/failure.js";
import { addon } from "../native/load.js";
import type { ArenaMemory } from "./arena-memory.js";
import { addressText, publishReleaseFailure } from "./release-failure.js";

/**
 * Memory of a native backend. It lives until the last of arena, views and transfers is gone, and is given back then, so nothing has to be
 * closed when the arena becomes unreachable; only failures of that go unheard.
 */
export class NativeMemory implements ArenaMemory {
  readonly native: NativeArena;
  readonly busy = false;

  /** @throws what the backend throws at a reserve */
  constructor(backend: NativeBackend, totalBytes: number) {
    this.native = callNative(() => addon().createArena(backend, totalBytes));
  }

  malloc(bytes: number): bigint {
    return callNative(() => this.native.malloc(bytes));
  }

  free(address: bigint): void {
    try {
      this.native.free(address);
    } catch (thrown) {
      publishUnlessBusy(address, thrown);
    }
  }

  async freeInBackground(address: bigint): Promise<void> {
    try {
      await this.native.freeInBackground(address);
    } catch (thrown) {
      publishUnlessBusy(address, thrown);
    }
  }

  close(): unknown[] | null {
    return callNative(() => this.native.close())?.map(fromNative) ?? null;
  }

  async closeInBackground(): Promise<unknown[] | null> {
    try {
      return (await this.native.closeInBackground())?.map(fromNative) ?? null;
    } catch (thrown) {
      throw fromNative(thrown);
    }
  }
}

/** Of a free: what is not refused was done, and failed. */
function publishUnlessBusy(address: bigint, thrown: unknown): void {
  const error = fromNative(thrown);
  if (!(error instanceof ModelExpressError) || error.code === "ERR_ARENA_BUSY") throw error;
  publishReleaseFailure("free", addressText(address), error);
}
