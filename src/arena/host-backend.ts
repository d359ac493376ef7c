import type { NativeHostBackend } from "../native/addon.js";
import { callNative } from "../native/failure.js";
import { addon } from "../native/load.js";
import type { VmmBackend } from "./vmm-backend.js";

/**
 * Host memory: one reserved range without access and without memory, anonymous memory mapped into it in huge pages where the kernel has
 * them. Granularity 2 MiB, or a page where that is more. Memory that was given back keeps its addresses.
 * Errors: ERR_ARENA_RESERVE_REFUSED, ERR_ARENA_OUT_OF_MEMORY, ERR_ARENA_RELEASE_FAILED; ERR_ARENA_ADDRESS for a range that this object has
 * not reserved.
 */
class HostBackend implements VmmBackend {
  readonly memory = "host";
  readonly device = "host";
  #lazyNative: NativeHostBackend | undefined;

  allocationGranularity(): number {
    return this.#native().granularity();
  }

  reserve(totalBytes: number): bigint {
    return callNative(() => this.#native().reserve(totalBytes));
  }

  allocate(va: bigint, bytes: number): bigint {
    return callNative(() => this.#native().allocate(va, bytes));
  }

  deallocate(va: bigint, bytes: number, handle: bigint): void {
    callNative(() => this.#native().deallocate(va, bytes, handle));
  }

  releaseReserve(base: bigint, totalBytes: number): void {
    callNative(() => this.#native().releaseReserve(base, totalBytes));
  }

  #native(): NativeHostBackend {
    this.#lazyNative ??= new (addon().NativeHostBackend)();
    return this.#lazyNative;
  }
}

/** The backend of host memory. One object serves any number of arenas; an arena over it does its work natively. */
export function hostBackend(): VmmBackend {
  return new HostBackend();
}

/** True for an unaltered object of `hostBackend()`: the arena may then bypass its methods. */
export function isPlainHostBackend(backend: VmmBackend): boolean {
  return Object.getPrototypeOf(backend) === HostBackend.prototype && !methods.some((method) => Object.hasOwn(backend, method));
}

const methods: readonly (keyof VmmBackend)[] = ["allocationGranularity", "reserve", "allocate", "deallocate", "releaseReserve"];
