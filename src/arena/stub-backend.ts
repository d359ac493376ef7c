import { hugePageBytes } from "../units.js";
import type { VmmBackend } from "./vmm-backend.js";

/** No address of a real process or device: what leaks from a stub is recognised at once. */
const implausibleBase = 0x10_0000_0000_0000n;

/**
 * A backend for tests: touches no memory, and lists every call in order. Handles count from 1;
 * reserves follow one another.
 */
export class StubBackend implements VmmBackend {
  readonly memory = "none";
  /** `[base, totalBytes]` of each reserve. */
  readonly reserved: [base: bigint, totalBytes: number][] = [];
  /** `[va, bytes, handle]` of each allocation. */
  readonly allocations: [va: bigint, bytes: number, handle: bigint][] = [];
  /** `[va, bytes, handle]` of each deallocation. */
  readonly deallocations: [va: bigint, bytes: number, handle: bigint][] = [];
  /** `[base, totalBytes]` of each released reserve. */
  readonly released: [base: bigint, totalBytes: number][] = [];
  readonly #granularity: number;
  #nextBase = implausibleBase;
  #nextHandle = 1n;

  /**
   * @param options.granularity in bytes, reported as it is, so that wrong ones can be tried.
   *   Default 2 MiB
   */
  constructor(options: { readonly granularity?: number } = {}) {
    this.#granularity = options.granularity ?? hugePageBytes;
  }

  allocationGranularity(): number {
    return this.#granularity;
  }

  reserve(totalBytes: number): bigint {
    const base = this.#nextBase;
    this.#nextBase += BigInt(totalBytes);
    this.reserved.push([base, totalBytes]);
    return base;
  }

  allocate(va: bigint, bytes: number): bigint {
    const handle = this.#nextHandle++;
    this.allocations.push([va, bytes, handle]);
    return handle;
  }

  deallocate(va: bigint, bytes: number, handle: bigint): void {
    this.deallocations.push([va, bytes, handle]);
  }

  releaseReserve(base: bigint, totalBytes: number): void {
    this.released.push([base, totalBytes]);
  }
}
