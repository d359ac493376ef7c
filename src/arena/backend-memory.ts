import { errorOf } from "../errors.js";
import type { ArenaFrame, NativeArena } from "../native/addon.js";
import { callNative, fromNative } from "../native/failure.js";
import { addon } from "../native/load.js";
import type { ArenaMemory } from "./arena-memory.js";
import { addressText, publishReleaseFailure } from "./release-failure.js";
import type { VmmBackend } from "./vmm-backend.js";

/** Places in the registers of {@link ArenaFrame}. */
const addressRegister = 0;
const bytesRegister = 1;
const handleRegister = 2;

/** Memory of a backend written in JavaScript: records and bump pointer are native, the backend's calls are framed by native ones. */
export class BackendMemory implements ArenaMemory {
  readonly native: NativeArena;
  readonly #backend: VmmBackend;
  readonly #frame: ArenaFrame;
  readonly #registers: BigUint64Array;
  readonly #base: bigint;
  readonly #totalBytes: number;
  readonly #granularity: number;
  #live: BigUint64Array = new BigUint64Array(0);
  #busy = false;

  /**
   * Reserves. When anything fails afterwards the reserve is released again, and the first error goes up.
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
    let committed = false;
    this.#busy = true;
    try {
      const handle = this.#backend.allocate(address, roundedBytes);
      requireUnsigned("allocate", "a handle", handle);
      registers[handleRegister] = handle;
      committed = this.#frame.commit();
    } finally {
      this.#busy = false;
      if (!committed) this.#frame.abandon();
    }
    return address;
  }

  take(address: bigint): boolean {
    try {
      return this.#frame.take(address);
    } catch (thrown) {
      throw fromNative(thrown);
    }
  }

  giveBack(): void {
    const registers = this.#registers;
    this.#deallocate(registers[addressRegister] as bigint, Number(registers[bytesRegister]), registers[handleRegister] as bigint);
  }

  beginClose(): boolean {
    const live = callNative(() => this.native.beginClose());
    if (live === null) return false;
    this.#live = live;
    return true;
  }

  finishClose(): unknown[] {
    const live = this.#live;
    const errors: unknown[] = [];
    for (let at = 0; at < live.length; at += 3) {
      try {
        this.#deallocate(live[at] as bigint, Number(live[at + 1]), live[at + 2] as bigint);
      } catch (error) {
        errors.push(error);
      }
    }
    this.#busy = true;
    try {
      this.#backend.releaseReserve(this.#base, this.#totalBytes);
    } catch (error) {
      errors.push(error);
    } finally {
      this.#busy = false;
    }
    return errors;
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
      publishReleaseFailure("releaseReserve", addressText(this.#base), failure, error);
    }
  }
}

function requireUnsigned(operation: string, what: string, value: bigint): void {
  if (typeof value === "bigint" && BigInt.asUintN(64, value) === value) return;
  const shown = typeof value === "bigint" ? `${value}` : `${typeof value} ${String(value)}`;
  throw errorOf(
    "ERR_ARENA_BACKEND_RESULT",
    `backend.${operation}() must return ${what}, a bigint from 0 to 2^64 - 1, it returned ${shown}`,
    {
      facts: { operation },
    },
  );
}
