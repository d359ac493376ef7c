import type { NativeArena, NativeBackend } from "../native/addon.js";
import { callNative, fromNative } from "../native/failure.js";
import { addon } from "../native/load.js";
import type { ArenaMemory } from "./arena-memory.js";

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

  take(address: bigint): boolean {
    return callNative(() => this.native.take(address));
  }

  giveBack(): void {
    callNative(() => this.native.giveBack());
  }

  beginClose(): boolean {
    return callNative(() => this.native.beginClose()) !== null;
  }

  finishClose(): unknown[] {
    return this.native.finishClose().map(fromNative);
  }
}
