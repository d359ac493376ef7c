/**
 * What the declarations of the addon (`addon.d.ts`, generated) name and napi-derive cannot give:
 * values that cross by the plain C interface, because its own wrappers cost more than the calls.
 *
 * Conventions of the addon: columns are parallel typed arrays, one entry per item. Byte counts and
 * file offsets are safe integers in a Float64Array, addresses are in a BigUint64Array. A failing
 * call throws, or rejects with, an error whose message is JSON, which `failure.ts` turns into the
 * error classes of `errors.ts`. Whatever reads files or hashes runs on threads of the addon, never
 * on libuv's pool. Objects of the addon belong to the JavaScript thread that made them.
 */

/** From 0 to 2^64 - 1. */
export type Address = bigint;

/**
 * A Uint8Array over memory that is not shared, in words that TypeScript before 5.7 knows too: from
 * then on it is `Uint8Array<ArrayBuffer>`.
 */
export type Bytes = ReturnType<Uint8ArrayConstructor["of"]>;

/**
 * What an arena calls around the calls of a backend written in JavaScript, twelve to twenty-five
 * nanoseconds each: arguments and results go through `registers`, a buffer of four 64-bit places:
 * address, bytes, handle, and 1 once the memory of the claim is there.
 *
 * A claim is ended by the next call, whichever it is: as the registers say, it is mapped, or its
 * address space is lost.
 */
export interface ArenaFrame {
  readonly registers: ArrayBuffer;
  /** Claims rounded-up address space: address and bytes are in the registers. */
  claim(bytes: number): boolean;
  /** Ends the claim. */
  settle(): boolean;
  /**
   * Detaches the views of a live record and takes it out: address, bytes and handle are in the
   * registers. False when the address is unknown. ERR_ARENA_BUSY while pinned, and where JavaScript
   * has moved memory out of a view.
   */
  take(address: bigint): boolean;
}
