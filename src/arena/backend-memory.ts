import { errorOf, hasCode } from "../errors.js";
import type { NativeArena } from "../native/addon.js";
import { callNative, fromNative } from "../native/failure.js";
import type { ArenaFrame } from "../native/hand-typed.js";
import { addon } from "../native/load.js";
import type { ArenaMemory } from "./arena-memory.js";
import { publishReleaseFailure, type ReleaseFailure } from "./release-failure.js";
import { onceTold } from "./telling-turns.js";
import type { VmmBackend } from "./vmm-backend.js";

/** Places in the registers of {@link ArenaFrame}. */
const addressRegister = 0;
const bytesRegister = 1;
const handleRegister = 2;
const mappedRegister = 3;

/**
 * Memory of a backend written in JavaScript: records and bump pointer are native, the backend's
 * calls are framed by native ones.
 */
export class BackendMemory implements ArenaMemory {
  readonly native: NativeArena;
  readonly #backend: VmmBackend;
  readonly #frame: ArenaFrame;
  readonly #registers: BigUint64Array;
  readonly #base: bigint;
  readonly #totalBytes: number;
  readonly #granularity: number;
  /**
   * Of an arena that is closed: `[address, bytes, handle, ...]` of what is to be given back, and
   * how far that is.
   */
  #live: BigUint64Array | undefined;
  #givenBack = 0;
  #released = false;
  #busy = false;

  /**
   * Reserves. When anything fails afterwards the reserve is released again, and the first error
   * goes up.
   * @param totalBytes a multiple of `granularity`
   * @param granularity a power of two
   */
  constructor(backend: VmmBackend, totalBytes: number, granularity: number) {
    const native = addon();
    this.#backend = backend;
    this.#totalBytes = totalBytes;
    this.#granularity = granularity;
    this.#base = backend.reserve(totalBytes);
    try {
      requireUnsigned("reserve", "an address", this.#base);
      const hostMemory = backend.memory === "host";
      this.native = callNative(() => native.createExternalArena(this.#base, totalBytes, granularity, hostMemory));
      this.#frame = this.native.frame();
      this.#registers = new BigUint64Array(this.#frame.registers);
    } catch (error) {
      this.#releaseAfter(error);
      throw error;
    }
  }

  get busy(): boolean {
    return this.#busy;
  }

  malloc(bytes: number): bigint {
    const registers = this.#registers;
    try {
      this.#frame.claim(bytes);
    } catch (thrown) {
      throw fromNative(thrown);
    }
    const address = registers[addressRegister] as bigint;
    const roundedBytes = Math.ceil(bytes / this.#granularity) * this.#granularity;
    let handle: unknown;
    this.#busy = true;
    try {
      handle = this.#backend.allocate(address, roundedBytes);
    } finally {
      this.#busy = false;
    }
    // Without a call, which the end of the stack could refuse: once it is noted, the memory is
    // given back whatever comes.
    if (typeof handle === "bigint") {
      registers[handleRegister] = handle;
      if (registers[handleRegister] === handle) {
        registers[mappedRegister] = 1n;
        this.#frame.settle();
        return address;
      }
    }
    throw notUnsigned("allocate", "a handle", handle);
  }

  free(address: bigint): undefined {
    const registers = this.#registers;
    try {
      if (!this.#frame.take(address)) return;
    } catch (thrown) {
      throw fromNative(thrown);
    }
    const bytes = Number(registers[bytesRegister]);
    try {
      this.#deallocate(registers[addressRegister] as bigint, bytes, registers[handleRegister] as bigint);
    } catch (error) {
      publishReleaseFailure("free", { address, bytes, error });
    }
  }

  async freeInBackground(address: bigint): Promise<void> {
    await unlessTold(() => this.free(address));
  }

  close(): ReleaseFailure[] | null {
    requireStack(closeFrames);
    this.#live ??= callNative(() => this.native.closeRecords()) ?? undefined;
    const live = this.#live;
    if (live === undefined || this.#released) return null;
    const failures: ReleaseFailure[] = [];
    // Noted before each call: after a throw that ends this one, at the end of the stack, another
    // close goes on behind it.
    while (this.#givenBack < live.length) {
      const at = this.#givenBack;
      this.#givenBack = at + 3;
      const [address, bytes] = [live[at] as bigint, Number(live[at + 1])];
      try {
        this.#deallocate(address, bytes, live[at + 2] as bigint);
      } catch (error) {
        failures.push({ address, bytes, error });
      }
    }
    this.#released = true;
    this.#busy = true;
    try {
      this.#backend.releaseReserve(this.#base, this.#totalBytes);
    } catch (error) {
      failures.push({ address: this.#base, bytes: this.#totalBytes, error });
    } finally {
      this.#busy = false;
    }
    return failures;
  }

  async closeInBackground(): Promise<ReleaseFailure[] | null> {
    return await unlessTold(() => this.close());
  }

  #deallocate(address: bigint, bytes: number, handle: bigint): void {
    this.#busy = true;
    try {
      this.#backend.deallocate(address, bytes, handle);
    } finally {
      this.#busy = false;
    }
  }

  #releaseAfter(error: unknown): void {
    try {
      this.#backend.releaseReserve(this.#base, this.#totalBytes);
    } catch (failure) {
      publishReleaseFailure("releaseReserve", { address: this.#base, bytes: this.#totalBytes, error: failure }, error);
    }
  }
}

/**
 * As `giveBack`, tried again while it is refused because of a view that may have been collected.
 */
async function unlessTold<T>(giveBack: () => T): Promise<T> {
  const attempt = (): { readonly done: T } | { readonly refused: unknown } => {
    try {
      return { done: giveBack() };
    } catch (thrown) {
      if (!hasCode(thrown, "ERR_ARENA_BUSY")) throw thrown;
      return { refused: thrown };
    }
  };
  const outcome = await onceTold(attempt, (answer) => "refused" in answer);
  if ("refused" in outcome) throw outcome.refused;
  return outcome.done;
}

/** Frames of this size that the calls of a backend at a close are given: some 40 KiB. */
const closeFrames = 500;

/**
 * Throws a RangeError while nothing has begun, rather than in the middle of the backend's call,
 * where the stack is about to end.
 */
function requireStack(frames: number): number {
  return frames === 0 ? 0 : 1 + requireStack(frames - 1);
}

function requireUnsigned(operation: string, what: string, value: bigint): void {
  if (typeof value !== "bigint" || BigInt.asUintN(64, value) !== value) throw notUnsigned(operation, what, value);
}

function notUnsigned(operation: string, what: string, value: unknown): Error {
  const shown = typeof value === "bigint" ? `${value}` : `${typeof value} ${String(value)}`;
  return errorOf(
    "ERR_ARENA_BACKEND_RESULT",
    `backend.${operation}() must return ${what}, a bigint from 0 to 2^64 - 1, it returned ${shown}`,
    {
      facts: { operation },
    },
  );
}
