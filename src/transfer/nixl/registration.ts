import { custom, shownAs } from "../../inspection.js";
import { awaitNative } from "../../native/failure.js";
import type { AgentHandle } from "./agent-handle.js";
import type { ArenaRegions, RegionLayout } from "./arena-regions.js";
import { Coverage } from "./coverage.js";
import { type Pieces, pieceBytes } from "./descriptors.js";

/**
 * Memory or a file that an agent's plugin knows. Closed by `close()`, `await using`, or with its
 * agent. It belongs to the agent: one that nobody holds any more stays, for other processes may be
 * reading, and goes with the agent, which ends by a finalizer when it is unreachable itself.
 */
export class Registration {
  readonly agent: AgentHandle;
  readonly plugin: string;
  /** What is registered, in the order given. */
  readonly pieces: Pieces;
  /** Bytes of all pieces. */
  readonly byteLength: number;
  /** How the memory was cut into `pieces`. */
  readonly layout: RegionLayout;
  /** Why so, in words for a log or a report. */
  readonly reason: string;
  /** Path of a registered file, where it is known. */
  readonly file: string | undefined;
  /** @internal */
  readonly number: number;
  #coverage: Coverage | undefined;
  #closed: Promise<void> | undefined;

  /** @internal Made by the methods of {@link NixlAgent}. */
  constructor(
    agent: AgentHandle,
    number: number,
    pieces: Pieces,
    plugin: string,
    file: string | undefined,
    { layout, reason }: Pick<ArenaRegions, "layout" | "reason"> = { layout: "pieces", reason: "as the caller named them" },
  ) {
    this.agent = agent;
    this.number = number;
    this.pieces = pieces;
    this.plugin = plugin;
    this.byteLength = pieceBytes(pieces);
    this.file = file;
    this.layout = layout;
    this.reason = reason;
  }

  /** Number of `pieces`: one in a registration of a model's arena. */
  get regions(): number {
    return this.pieces.length.length;
  }

  /**
   * True when the whole of `[address, address + length)` lies within one registered piece. Memory
   * allocated afterwards does not.
   */
  covers(address: bigint, length: number): boolean {
    this.#coverage ??= new Coverage(this.pieces);
    return this.#coverage.holds(address, length);
  }

  /**
   * Undoes the registration, then unpins its memory and closes its descriptor. Closing again does
   * nothing, unless it failed before.
   * @throws ERR_NIXL_BUSY while a transfer uses it; ERR_NIXL_DEREGISTER: it stays registered, and
   *   its memory pinned, until the agent ends
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

  /** What is registered, where, and how it was cut. */
  toJSON() {
    const { plugin, byteLength, regions, layout, reason, file = null } = this;
    return { agent: this.agent.name, plugin, kind: this.pieces.kind, byteLength, regions, layout, reason, file };
  }

  /** @internal A short form for `util.inspect`. */
  [custom](depth: number, options: object): string {
    return shownAs("Registration", this.toJSON(), depth, options);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
