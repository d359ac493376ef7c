import { entryOf } from "../../columns.js";
import { errorOf } from "../../errors.js";
import type { NixlTransferSpec } from "../../native/addon.js";
import { awaitNative, fromNative } from "../../native/failure.js";
import { addressText } from "../../plain-data.js";
import { deferred } from "../deferred.js";
import { keepingAlive } from "../settled.js";
import { abandon, transferOutcome } from "../waiting.js";
import type { AgentHandle } from "./agent-handle.js";
import { type Pieces, pieceBytes } from "./descriptors.js";
import type { Registration } from "./registration.js";

export interface NixlTransferOptions {
  readonly operation: "read" | "write";
  /** Memory of this agent. */
  readonly local: Pieces;
  /** A file, or memory of another agent; as many pieces as `local`, of the same lengths. */
  readonly remote: Pieces;
  /** Name of the other agent, as `loadRemote` gave it; leave it out for files. */
  readonly remoteAgent?: string;
  /**
   * Registrations of this agent that cover the pieces; they cannot be closed before the transfer is
   * released.
   */
  readonly registrations: readonly Registration[];
  /** Plugin that moves the bytes. Default: the agent's first. */
  readonly plugin?: string;
}

export interface NixlWaitOptions {
  readonly signal?: AbortSignal;
  /** Milliseconds from now. Default: none. */
  readonly timeoutMs?: number;
}

/** One transfer: made by {@link NixlAgent.createTransfer}, then `post()`, `wait()`, `release()`. */
export class Transfer {
  readonly agent: AgentHandle;
  /** Bytes to move. */
  readonly byteLength: number;
  /**
   * Resolves when all bytes are in place; rejects at a failure or abort, while pieces may still be
   * moving.
   */
  readonly done: Promise<void>;
  /** Resolves when nothing is in flight any more. Never rejects, keeps no process alive. */
  readonly settled: Promise<void>;
  readonly #number: number;
  readonly #done = deferred<void>();
  readonly #settled = deferred<void>();
  #posted = false;
  #over = false;
  #released: Promise<void> | undefined;

  private constructor(agent: AgentHandle, number: number, byteLength: number) {
    this.agent = agent;
    this.#number = number;
    this.byteLength = byteLength;
    this.done = this.#done.promise;
    this.done.catch(() => {});
    this.settled = this.#settled.promise;
  }

  /** @internal @throws ERR_NIXL_NOT_REGISTERED */
  static async create(agent: AgentHandle, plugin: number, options: NixlTransferOptions): Promise<Transfer> {
    requireRegistered(options);
    const spec: NixlTransferSpec = {
      plugin,
      write: options.operation === "write",
      local: options.local,
      remote: options.remote,
      agent: options.remoteAgent,
      registrations: options.registrations.map((registration) => registration.number),
      file: options.registrations.find((registration) => registration.file !== undefined)?.file,
    };
    const number = await awaitNative(() => agent.native.createTransfer(spec));
    return new Transfer(agent, number, pieceBytes(options.local));
  }

  /**
   * Starts it. Failures come through `done` and `wait()`. @throws ERR_NIXL_BUSY when it was posted
   * before
   */
  post(): void {
    if (this.#posted) throw errorOf("ERR_NIXL_BUSY", "a transfer is posted once");
    this.#posted = true;
    this.agent.native.post(
      this.#number,
      (failure) => {
        if (failure === null || failure === undefined) {
          this.#over = true;
          this.#done.resolve();
        } else this.#done.reject(fromNative(failure));
      },
      () => this.#settled.resolve(),
    );
  }

  /** All or nothing: NIXL tells no progress within a transfer. */
  progressBytes(): number {
    return this.#over ? this.byteLength : 0;
  }

  /**
   * Lets `done` reject with ERR_TRANSFER_ABORTED now. What is in flight ends by itself: see
   * `settled`.
   */
  abort(): void {
    this.agent.native.abort(this.#number);
  }

  /**
   * Waits for the end. At a deadline or an abort it rejects at once; the error's `settled` resolves
   * when nothing is in flight any more.
   * @throws ERR_ABORTED; ERR_TRANSFER_TIMEOUT; ERR_NIXL_TRANSFER with plugin, file and range;
   *   ERR_TRANSFER_ABORTED
   */
  async wait(options: NixlWaitOptions = {}): Promise<void> {
    if (!this.#posted) throw errorOf("ERR_NIXL_BUSY", "wait() before post(): the transfer was not started");
    const { signal, timeoutMs } = options;
    const deadline = timeoutMs === undefined ? undefined : performance.now() + timeoutMs;
    try {
      await transferOutcome(this, { signal, deadline, timeoutMs, totalBytes: this.byteLength });
    } catch (reason) {
      throw await abandon([this], reason, () => {});
    }
  }

  /**
   * Gives it back to NIXL. Releasing again does nothing, unless it failed before.
   * @throws ERR_NIXL_BUSY while it is in flight; ERR_NIXL_RELEASE: the agent's end tries again
   */
  release(): Promise<void> {
    if (this.agent.closed) return this.agent.ended;
    this.#released ??= awaitNative(() => this.agent.native.releaseTransfer(this.#number)).catch((error) => {
      this.#released = undefined;
      throw error;
    });
    return this.#released;
  }

  /** Aborts it if need be, waits until nothing is in flight, releases it. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#posted) {
      this.abort();
      await keepingAlive(this.settled);
    }
    await this.release();
  }
}

/** NIXL says of memory that it does not know only that it found nothing. */
function requireRegistered({ local, registrations }: NixlTransferOptions): void {
  const usable = registrations.filter(({ pieces }) => pieces.kind === local.kind && pieces.device === local.device);
  // Whoever registers the very pieces that are moved has nothing to look up.
  if (usable.some(({ pieces }) => pieces.address === local.address && pieces.length === local.length)) return;
  local.address.forEach((address, row) => {
    const length = entryOf(local.length, row);
    if (usable.some((registration) => registration.covers(address, length))) return;
    const shown = `${length} bytes of ${local.kind} at ${addressText(address)} (piece ${row})`;
    const message = `${shown} lie in none of the ${registrations.length} registrations given: memory allocated after arena.register() is not part of it, register again`;
    throw errorOf("ERR_NIXL_NOT_REGISTERED", message, { facts: { address: addressText(address), length, piece: row } });
  });
}
