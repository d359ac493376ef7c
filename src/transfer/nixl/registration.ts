import { awaitNative } from "../../native/failure.js";
import type { AgentHandle } from "./agent-handle.js";
import { type Pieces, pieceBytes } from "./descriptors.js";

/** Memory or a file that an agent's plugin knows. Closed by `close()`, `await using`, or with its agent. */
export class Registration {
  readonly agent: AgentHandle;
  readonly plugin: string;
  /** What is registered, in the order given. */
  readonly pieces: Pieces;
  /** Bytes of all pieces. */
  readonly byteLength: number;
  /** Path of a registered file, where it is known. */
  readonly file: string | undefined;
  /** @internal */
  readonly number: number;
  #closed: Promise<void> | undefined;

  /** @internal Made by the methods of {@link NixlAgent}. */
  constructor(agent: AgentHandle, number: number, pieces: Pieces, plugin: string, file: string | undefined) {
    this.agent = agent;
    this.number = number;
    this.pieces = pieces;
    this.plugin = plugin;
    this.byteLength = pieceBytes(pieces);
    this.file = file;
  }

  /** True when the whole of `[address, address + length)` lies within one registered piece. Memory allocated afterwards does not. */
  covers(address: bigint, length: number): boolean {
    const { address: begin, length: lengths } = this.pieces;
    return begin.some((start, row) => start <= address && address + BigInt(length) <= start + BigInt(lengths[row] ?? 0));
  }

  /**
   * Undoes the registration, then unpins its memory and closes its descriptor. Closing again does nothing, unless it failed before.
   * @throws ERR_NIXL_BUSY while a transfer uses it; ERR_NIXL_DEREGISTER: it stays registered, and its memory pinned, until the agent ends
   */
  close(): Promise<void> {
    // The agent's end undoes what is registered with it.
    if (this.agent.closed) return this.agent.ended;
    this.#closed ??= awaitNative(() => this.agent.native.deregister(this.number)).catch((error) => {
      this.#closed = undefined;
      throw error;
    });
    return this.#closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
