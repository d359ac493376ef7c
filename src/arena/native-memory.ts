import type { NativeArena } from "../native/addon.js";
import { callNative, fromNative } from "../native/failure.js";
import { addon } from "../native/load.js";
import type { ArenaMemory } from "./arena-memory.js";

/**
 * Memory of the native host backend. Its pages live until the last of arena, views and transfers is gone, so nothing has to be closed when
 * the arena becomes unreachable.
 */
export class NativeMemory implements ArenaMemory {
  readonly native: NativeArena;
  readonly busy = false;

  /** @throws ERR_ARENA_RESERVE_REFUSED */
  constructor(totalBytes: number) {
    this.native = callNative(() => addon().createHostArena(totalBytes));
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
