import { constants } from "node:buffer";
import { optionInvalid, requireKnown } from "../arguments.js";
import { errorOf } from "../errors.js";
import { publish } from "../events.js";
import { custom, shownAs } from "../inspection.js";
import type { NativeArena } from "../native/addon.js";
import { awaitNative, callNative } from "../native/failure.js";
import { addressText } from "../plain-data.js";
import { isPowerOfTwo } from "../units.js";
import type { ArenaMemory } from "./arena-memory.js";
import { BackendMemory } from "./backend-memory.js";
import { closeUnreachable } from "./close-unreachable.js";
import { countGivingBack } from "./giving-back.js";
import { nativeBackendOf } from "./native-backend.js";
import { NativeMemory } from "./native-memory.js";
import { DEFAULT_ARENA_BYTES, requireBackend, requireGranularity, requireSize, reserveBytes } from "./options.js";
import { publishReleaseFailure, type ReleaseFailure } from "./release-failure.js";
import type { VmmBackend } from "./vmm-backend.js";

export interface VmmArenaOptions {
  /** Where the memory comes from. Required: an arena never falls back to one of its own. */
  readonly backend: VmmBackend;
  /**
   * Address space to reserve in bytes, rounded up to the backend's granularity. Default
   * {@link DEFAULT_ARENA_BYTES}.
   */
  readonly totalBytes?: number;
}

/**
 * A view keeps its arena: memory is not closed behind it because nobody else holds the arena any
 * more.
 */
const arenaOfView = new WeakMap<ArrayBuffer, VmmArena>();

/**
 * One reserved range of addresses, filled by bump allocation: addresses ascend and are never handed
 * out twice, so a registration over `registeredRange()` stays valid whatever is freed.
 *
 * An arena belongs to the JavaScript thread that made it. Disposable; everything can be read after
 * `close()`. One that becomes unreachable unclosed is closed by a finalizer, which publishes
 * failures as events.
 */
export class VmmArena {
  /**
   * @internal A function among the fields: `structuredClone` and `postMessage` refuse it, and quote
   *   it, instead of giving an empty object.
   */
  readonly cannotBeCloned = () => "A VmmArena stays in its thread: send addresses and lengths in it";
  /** First address of the reserve. */
  readonly base: bigint;
  /** Bytes reserved: a multiple of the granularity. */
  readonly totalBytes: number;
  /** What sizes are rounded up to, in bytes: a power of two. */
  readonly granularity: number;
  /** The backend's device, `host` where it names none. */
  readonly device: string;
  /** What lies behind the addresses, as the backend says. */
  readonly memory: "host" | "device" | "none";
  /** @internal */
  readonly native: NativeArena;
  readonly #memory: ArenaMemory;
  /** Of a close whose memory a native thread gives back: all its failures, once it has. */
  #closing: Promise<ReleaseFailure[]> | undefined;

  /**
   * Asks the backend for its granularity, then reserves; allocates nothing yet.
   * @throws ERR_ARENA_BACKEND_REQUIRED, ERR_ARENA_SIZE, ERR_ARENA_GRANULARITY,
   *   ERR_ARENA_BACKEND_RESULT, what the backend throws (ERR_ARENA_RESERVE_REFUSED from the
   *   host's); what fails after the reserve releases it again
   */
  constructor(options: VmmArenaOptions) {
    const backend = requireBackend(options?.backend);
    requireKnown("VmmArena(options)", options, ["backend", "totalBytes"]);
    const totalBytes = options.totalBytes ?? DEFAULT_ARENA_BYTES;
    requireSize("totalBytes", totalBytes);
    const granularity = backend.allocationGranularity();
    requireGranularity(granularity);
    this.totalBytes = reserveBytes(totalBytes, granularity);
    this.granularity = granularity;
    this.device = backend.device ?? "host";
    this.memory = backend.memory ?? "none";
    const native = nativeBackendOf(backend);
    this.#memory =
      native === undefined ? new BackendMemory(backend, this.totalBytes, granularity) : new NativeMemory(native, this.totalBytes);
    // Views of native host memory may outlive the arena, and giving that memory back does not fail.
    if (native === undefined || this.memory !== "host") closeUnreachable.register(this, this.#memory, this);
    this.native = this.#memory.native;
    this.base = this.native.base;
    publish({ event: "arena.reserve", address: addressText(this.base), totalBytes: this.totalBytes, granularity, device: this.device });
  }

  /** @internal True when the arena calls no JavaScript: any thread can use it. */
  get nativeMemory(): boolean {
    return this.#memory instanceof NativeMemory;
  }

  /**
   * @internal True when the memory is the native host backend's own, so that files can be mapped
   *   over it.
   */
  get nativeHost(): boolean {
    return this.nativeMemory && this.memory === "host";
  }

  /** Everything ever handed out, from the base on, holes included. Never falls. */
  get usedBytes(): number {
    return this.native.usedBytes;
  }

  /** Bytes of the allocations alive. */
  get mappedBytes(): number {
    return this.native.mappedBytes;
  }

  get liveAllocationCount(): number {
    return this.native.liveAllocationCount;
  }

  get closed(): boolean {
    return this.native.closed;
  }

  get state(): "open" | "closed" {
    return this.closed ? "closed" : "open";
  }

  /**
   * What to register with a network card or storage library: everything ever handed out.
   * `usedBytes` is 0 before the first `malloc`.
   */
  registeredRange(): { readonly base: bigint; readonly usedBytes: number } {
    return { base: this.base, usedBytes: this.usedBytes };
  }

  /**
   * Makes everything alive now known to a NIXL agent by one registration, pinned until that is
   * closed: `free` and `close` meanwhile throw ERR_ARENA_BUSY. What is allocated later is not part
   * of it: ask its `covers(address, bytes)`.
   * @param options the agent's: see RegisterOptions
   * @throws ERR_NIXL_REGISTER, also when nothing is alive; ERR_ARENA_CLOSED; ERR_ARENA_NOT_LOADABLE
   *   for memory that NIXL cannot use
   */
  register<Registration, Options>(
    agent: { registerArena(arena: VmmArena, options?: Options): Promise<Registration> },
    options?: Options,
  ): Promise<Registration> {
    if (typeof agent?.registerArena !== "function") throw optionInvalid("register(agent)", "a NixlAgent", agent);
    return agent.registerArena(this, options);
  }

  /**
   * Allocates `bytes`, rounded up to the granularity, by one call of the backend, and returns the
   * address. When the backend fails its error goes up unchanged and only this piece of address
   * space is lost: `usedBytes` has grown, nothing else.
   * @param alignment a power of two up to the granularity, which all addresses keep anyhow
   * @throws ERR_ARENA_SIZE, ERR_ARENA_ALIGNMENT, ERR_ARENA_EXHAUSTED, ERR_ARENA_CLOSED,
   *   ERR_ARENA_REENTRANT, ERR_ARENA_BACKEND_RESULT, what the backend throws
   *   (ERR_ARENA_OUT_OF_MEMORY from the host's)
   */
  malloc(bytes: number, alignment?: number): bigint {
    const memory = this.#memory;
    if (memory.busy) throw this.#reentrant("malloc");
    requireSize("malloc(bytes)", bytes);
    if (alignment !== undefined) this.#requireAlignment(alignment);
    return memory.malloc(bytes);
  }

  /** @internal As `malloc`, on a native thread where the backend is native. */
  async mallocInBackground(bytes: number): Promise<bigint> {
    if (!this.nativeMemory) return this.malloc(bytes);
    requireSize("malloc(bytes)", bytes);
    return await awaitNative(() => this.native.mallocInBackground(bytes));
  }

  /**
   * Gives the allocation that starts at `address` back and detaches its views. Of memory that was
   * moved out of a view, by a stream of bytes or `ArrayBuffer.transfer()`, the pages stay until
   * that is collected. An address that is unknown, already freed, or of a closed arena is no error
   * and does nothing. A failure of the backend is published as `arena.release-failed`; the
   * allocation is gone all the same. More than 64 MiB of the host, and the memory of a device, are
   * given back on a native thread, as by `close()`.
   * @throws ERR_ARENA_BUSY while a transfer uses the allocation, or, of a backend written in
   *   JavaScript, memory was moved out of a view; it then changes nothing; ERR_ARENA_ADDRESS when
   *   `address` is no bigint; ERR_ARENA_REENTRANT
   */
  free(address: bigint): void {
    const memory = this.#memory;
    if (memory.busy) throw this.#reentrant("free");
    if (typeof address !== "bigint") throw this.#noAddress(address);
    const freeing = BigInt.asUintN(64, address) === address ? memory.free(address) : undefined;
    if (freeing !== undefined) countGivingBack(freeing);
  }

  /** @internal As `free`; resolves when the memory is given back. */
  async freeInBackground(address: bigint): Promise<void> {
    if (this.#memory.busy) throw this.#reentrant("free");
    await this.#memory.freeInBackground(address);
  }

  /**
   * Refuses further work, detaches all views, gives every live allocation back exactly once, going
   * on after errors, and releases the reserve. Then throws the first error, if any; each is also
   * published as `arena.release-failed`. Closing again does nothing. Memory that was moved out of a
   * view, and the address space then, stay until that is collected.
   *
   * More than 64 MiB of the host, and the memory of a device, are given back on a native thread
   * after `close()` has returned: errors of that are published only, and
   * `await arena[Symbol.asyncDispose]()` waits for it. Whoever finds no memory meanwhile waits for
   * it too.
   * @throws ERR_ARENA_BUSY while a transfer uses any allocation, while memory is allocated on
   *   another thread, and as `free`: the arena then stays open; ERR_ARENA_REENTRANT; what the
   *   backend threw first
   */
  close(): void {
    if (this.#memory.busy) throw this.#reentrant("close");
    const closed = this.#memory.close();
    if (closed instanceof Promise) {
      this.#publishClosed();
      this.#closing = closed;
      countGivingBack(closed.then((failures) => this.#publishFailures(failures)));
    } else this.#closed(closed);
  }

  /**
   * @internal As `close`, but resolves when the memory is given back, and rejects with the first
   *   error. Waits for a close before it.
   */
  async closeInBackground(): Promise<void> {
    if (this.#memory.busy) throw this.#reentrant("close");
    if (this.#closing === undefined) this.#closed(await this.#memory.closeInBackground());
    else throwFirst(await this.#closing);
  }

  [Symbol.dispose](): void {
    this.close();
  }

  /**
   * Closes, and resolves once the memory is given back. @throws as {@link close}, also what was
   * thrown on a native thread
   */
  [Symbol.asyncDispose](): Promise<void> {
    return this.closeInBackground();
  }

  /**
   * `length` bytes at `address` without a copy, detached when they are freed. It keeps the arena
   * reachable.
   * @internal
   * @throws ERR_TENSOR_VIEW_TOO_LARGE beyond what an ArrayBuffer of this Node version holds;
   *   ERR_ARENA_ADDRESS when they do not lie within one live allocation; ERR_ARENA_CLOSED;
   *   ERR_ARENA_NOT_LOADABLE when the memory is not the host's
   */
  view(address: bigint, length: number): ArrayBuffer {
    requireViewLength(length);
    if (length === 0) return new ArrayBuffer(0);
    const buffer = callNative(() => this.native.view(address, length));
    arenaOfView.set(buffer, this);
    return buffer;
  }

  /**
   * @internal Detaches the views that begin within these bytes. True where memory of one was moved,
   *   or its collection is not told yet.
   */
  endViews(address: bigint, length: number): boolean {
    return this.native.endViews(address, length);
  }

  /** What identifies the arena, and how full it is. */
  toJSON() {
    const { totalBytes, granularity, device, memory, usedBytes, mappedBytes, liveAllocationCount, closed } = this;
    return { base: addressText(this.base), totalBytes, granularity, device, memory, usedBytes, mappedBytes, liveAllocationCount, closed };
  }

  /** @internal A short form for `util.inspect`. */
  [custom](depth: number, options: object): string {
    return shownAs("VmmArena", this.toJSON(), depth, options);
  }

  /** `failures`: of the close; null where it was closed before. */
  #closed(failures: ReleaseFailure[] | null): void {
    if (failures === null) return;
    this.#publishClosed();
    this.#publishFailures(failures);
    throwFirst(failures);
  }

  #publishClosed(): void {
    closeUnreachable.unregister(this);
    const { base, totalBytes, usedBytes, device } = this;
    publish({ event: "arena.closed", address: addressText(base), totalBytes, usedBytes, device });
  }

  #publishFailures(failures: readonly ReleaseFailure[]): void {
    for (const failure of failures) publishReleaseFailure("close", failure);
  }

  #requireAlignment(alignment: number): void {
    if (isPowerOfTwo(alignment) && alignment <= this.granularity && this.base % BigInt(alignment) === 0n) return;
    const limit =
      this.base % BigInt(this.granularity) === 0n ? `${this.granularity}, the granularity` : `that of the base ${addressText(this.base)}`;
    throw errorOf("ERR_ARENA_ALIGNMENT", `malloc: the alignment must be a power of two up to ${limit}, it is ${String(alignment)}`, {
      facts: { alignment },
    });
  }

  #noAddress(address: unknown): Error {
    const shown = typeof address === "bigint" ? addressText(address) : `${typeof address} ${String(address)}`;
    return errorOf("ERR_ARENA_ADDRESS", `${shown} is no address of a live allocation of this arena: pass what malloc returned, a bigint`);
  }

  #reentrant(operation: string): Error {
    const message = `${operation}: the arena is in the middle of a call of its backend, and that backend called ${operation} of the same arena`;
    return errorOf("ERR_ARENA_REENTRANT", message, { facts: { operation } });
  }
}

function throwFirst(failures: readonly ReleaseFailure[]): void {
  if (failures[0] !== undefined) throw failures[0].error;
}

function requireViewLength(length: number): void {
  if (length <= constants.MAX_LENGTH) return;
  throw errorOf(
    "ERR_TENSOR_VIEW_TOO_LARGE",
    `a view of ${length} bytes is longer than the ${constants.MAX_LENGTH} bytes that Node ${process.versions.node} allows: take parts`,
    { facts: { length, maxBytes: constants.MAX_LENGTH } },
  );
}
