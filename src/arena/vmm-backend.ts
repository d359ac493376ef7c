/**
 * Where an arena's memory comes from. Anyone can implement it; `hostBackend()` and `StubBackend`
 * are provided.
 *
 * The arena calls it synchronously, on the JavaScript thread that made the arena, one call at a
 * time. A backend must not call the arena that is calling it: that is refused with
 * ERR_ARENA_REENTRANT. What a method throws goes up to the arena's caller unchanged, save that
 * failures of clean-up outside `close` are published as `arena.release-failed` events instead.
 *
 * Addresses and handles are bigints from 0 to 2^64 - 1, sizes are safe integers in bytes.
 */
export interface VmmBackend {
  /**
   * What lies behind the addresses: `host` memory, which this process can read and write, `device`
   * memory, or `none`, which is the default: the addresses only count, and loads into them are
   * refused. Claiming `host` for addresses that are not mapped crashes the process.
   */
  readonly memory?: "host" | "device" | "none";
  /** Name of the device whose memory it is, such as `cuda:0`. Default: `host`. */
  readonly device?: string;
  /**
   * What sizes are rounded up to: a positive power of two in bytes. Asked once, before `reserve`.
   */
  allocationGranularity(): number;
  /**
   * Sets address space aside, without memory, and returns its base, which should be a multiple of
   * the granularity.
   * @param totalBytes a multiple of the granularity
   */
  reserve(totalBytes: number): bigint;
  /**
   * Puts memory behind `[va, va + bytes)`, a part of the reserve that never had any before.
   * When it throws it has left nothing behind; that part of the address space is not used again.
   * @param bytes a multiple of the granularity
   * @returns a handle, handed back to `deallocate`; the arena does not look into it
   */
  allocate(va: bigint, bytes: number): bigint;
  /**
   * Gives the memory of one `allocate` back, called exactly once for each. The addresses stay
   * reserved.
   */
  deallocate(va: bigint, bytes: number, handle: bigint): void;
  /** Gives the address space back: the last call, after everything was deallocated. */
  releaseReserve(base: bigint, totalBytes: number): void;
}
