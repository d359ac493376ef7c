import type { FileHandle } from "node:fs/promises";
import type { VmmArena } from "../../arena/arena.js";
import { cudaDeviceNumber } from "../../arena/cuda-backend.js";
import { optionInvalid, requireInteger, requireKnown } from "../../arguments.js";
import { entryOf } from "../../columns.js";
import { readEnv } from "../../envs.js";
import { errorOf } from "../../errors.js";
import { publish } from "../../events.js";
import type { NativeFile, NativeNixlAgent } from "../../native/addon.js";
import { awaitNative, callNative, fromNative } from "../../native/failure.js";
import { addon } from "../../native/load.js";
import { deferred } from "../deferred.js";
import { duplicateFile } from "../duplicate-file.js";
import { keepingAlive } from "../settled.js";
import { within } from "../waiting.js";
import type { AgentHandle } from "./agent-handle.js";
import { loadNixl, type NixlApi, type NixlApiOptions } from "./api.js";
import { cutRegions } from "./arena-regions.js";
import type { Pieces } from "./descriptors.js";
import { livingAtRest, livingOf } from "./living.js";
import { pluginTraits, withThreads } from "./plugins.js";
import { Registration } from "./registration.js";
import { type NixlTransferOptions, Transfer } from "./transfer.js";

export interface NixlAgentOptions extends NixlApiOptions {
  /** Name by which other agents know it. */
  readonly name: string;
  /**
   * Plugins to make, with parameters over the plugin's own defaults, all as text:
   * `{ GDS_MT: { thread_count: "8" } }`. At least one. MX_GDS_THREADS counts for GDS_MT where no
   * `thread_count` is given.
   */
  readonly plugins: Readonly<Record<string, Readonly<Record<string, string>>>>;
  /** A thread of NIXL's that moves UCX transfers along. Default true, as in NIXL. */
  readonly progressThread?: boolean;
  /** TCP port on which NIXL listens for other agents. Default: none. */
  readonly listenPort?: number;
  /** How long `close()` waits for transfers in flight, in milliseconds. Default 30000. */
  readonly closeTimeoutMs?: number;
}

/** How an arena is made known to an agent. */
export interface RegisterOptions {
  /** Plugin that is to know the memory. Default: the agent's first. */
  readonly plugin?: string;
  /**
   * On a device: whether a region may span several allocations where the driver can export them as
   * one dma-buf. Default: only for plugins that reach memory by dma-buf alone, and with
   * MX_ARENA_SINGLE_MR. UCX may choose `cuda_ipc`, which addresses one allocation: say true where
   * UCX_TLS leaves it out, as in `UCX_TLS=^cuda_ipc`, and UCX_CUDA_COPY_REG_WHOLE_ALLOC=off is set,
   * without which UCX registers single allocations.
   */
  readonly spanAllocations?: boolean;
  /**
   * On a device: whether one region may go from the first allocation alive to the last, the holes
   * that freed ones left included, where the driver can export that as one dma-buf. Memory that is
   * being allocated or given back is waited for, at most 10 seconds; holes with memory that was
   * freed and is still used are left out. It asks what `spanAllocations` asks. Default: with
   * MX_ARENA_SINGLE_MR. The host's holes have no memory, and are left out.
   */
  readonly spanHoles?: boolean;
}

export const defaultCloseTimeoutMs = 30_000;

/** @internal Memory within one allocation that is pinned until a registration is undone. */
export interface PinnedMemory {
  readonly arena: VmmArena;
  readonly address: bigint;
  readonly length: number;
}

/**
 * A NIXL agent. One native thread makes all its calls, in order; nothing here blocks JavaScript.
 * Made by {@link NixlAgent.create}; `close()`, or `await using`, gives everything back: transfers
 * are released, then registrations undone in reverse, then plugins and agent ended.
 */
export class NixlAgent implements AgentHandle {
  readonly name: string;
  /** The library behind it. */
  readonly api: NixlApi;
  /** Plugins it was made with. */
  readonly plugins: readonly string[];
  /** Plugins that NIXL has files of; not each can be loaded on every machine. */
  readonly availablePlugins: readonly string[];
  /**
   * Resolves when the agent has ended and nothing is in flight or registered any more; rejects with
   * what could not be given back. Keeps no process alive.
   */
  readonly ended: Promise<void>;
  /** @internal */
  readonly native: NativeNixlAgent;
  readonly #closeTimeoutMs: number;
  readonly #end = deferred<void>();
  #closing = false;

  /** @internal Use {@link NixlAgent.create}. */
  constructor(options: NixlAgentOptions, api: NixlApi, native: NativeNixlAgent, availablePlugins: readonly string[]) {
    this.name = options.name;
    this.api = api;
    this.native = native;
    this.plugins = Object.freeze(Object.keys(options.plugins));
    this.availablePlugins = Object.freeze([...availablePlugins]);
    this.#closeTimeoutMs = options.closeTimeoutMs ?? defaultCloseTimeoutMs;
    this.ended = this.#end.promise;
    this.ended.catch(() => {});
  }

  /**
   * Loads NIXL unless it is, and makes an agent with its plugins. What fails half way is undone.
   * @throws ERR_OPTION_INVALID, ERR_NIXL_NOT_FOUND, ERR_NIXL_AGENT, ERR_NIXL_PLUGIN
   */
  static async create(options: NixlAgentOptions): Promise<NixlAgent> {
    requireKnown("NixlAgent.create(options)", options, ["name", "plugins", "progressThread", "listenPort", "closeTimeoutMs", "library"]);
    requireOptions(options);
    const api = await loadNixl(options);
    const answer = deferred<string[]>();
    const spec = {
      name: options.name,
      progressThread: options.progressThread ?? true,
      listenPort: options.listenPort ?? null,
      plugins: Object.entries(options.plugins).map(([name, parameters]) => ({
        name,
        parameters: Object.entries(withThreads(name, parameters)).flat(),
        strands: pluginTraits(name).strands,
      })),
    };
    const native = callNative(() =>
      api.native.createAgent(spec, (failure, plugins) => {
        if (failure === null || failure === undefined) answer.resolve(plugins ?? []);
        else answer.reject(fromNative(failure));
      }),
    );
    const available = await answer.promise;
    publish({ event: "nixl.agent-created", name: options.name, plugins: Object.keys(options.plugins), path: api.path });
    return new NixlAgent(options, api, native, available);
  }

  get closed(): boolean {
    return this.#closing;
  }

  /**
   * What another agent needs to read this one's registered memory; pass it on by any means. Export
   * again after registering more.
   */
  async exportMetadata(): Promise<Uint8Array> {
    this.#requireOpen();
    return awaitNative(() => this.native.metadata());
  }

  /**
   * Makes another agent known by what its `exportMetadata()` gave; returns its name.
   * @throws ERR_NIXL_METADATA
   */
  async loadRemote(metadata: Uint8Array): Promise<string> {
    this.#requireOpen();
    return awaitNative(() => this.native.loadRemote(metadata));
  }

  /** Forgets another agent and disconnects from it. */
  async forgetRemote(name: string): Promise<void> {
    this.#requireOpen();
    await awaitNative(() => this.native.forgetRemote(name));
  }

  /**
   * Makes memory of an arena known to a plugin: DRAM, or VRAM where the arena's memory is a
   * device's. The allocations around the pieces are pinned until the registration is closed:
   * `arena.free` and `arena.close` meanwhile throw ERR_ARENA_BUSY.
   * @throws ERR_ARENA_ADDRESS, ERR_NIXL_REGISTER
   */
  async registerMemory(arena: VmmArena, pieces: Omit<Pieces, "kind" | "device">, plugin?: string): Promise<Registration> {
    this.#requireOpen();
    const row = this.#row(plugin);
    const full: Pieces = { ...memoryOf(arena), address: pieces.address, length: pieces.length };
    const pins = new BigUint64Array(pieces.address.length * 2);
    pieces.address.forEach((address, at) => {
      pins[2 * at] = address;
      pins[2 * at + 1] = BigInt(entryOf(pieces.length, at));
    });
    const number = await awaitNative(() => this.native.register(row, full, arena.native, pins, null));
    return new Registration(this, number, full, entryOf(this.plugins, row), undefined);
  }

  /**
   * Makes everything alive in an arena known to a plugin, in as few regions as are legal there;
   * `regions`, `layout` and `reason` of the registration say which and why. What is allocated later
   * is not part of it: see {@link Registration.covers}.
   * @throws ERR_NIXL_REGISTER, also for an arena without allocations; ERR_ARENA_CLOSED;
   *   ERR_ARENA_NOT_LOADABLE; ERR_OPTION_UNKNOWN
   */
  async registerArena(arena: VmmArena, options: RegisterOptions = {}): Promise<Registration> {
    this.#requireOpen();
    const row = this.#row(options.plugin);
    const plugin = entryOf(this.plugins, row);
    const memory = memoryOf(arena);
    if (arena.closed) throw errorOf("ERR_ARENA_CLOSED", "the arena to register is closed");
    const single = readEnv("MX_ARENA_SINGLE_MR");
    const spans = {
      allocations: options.spanAllocations ?? (single || pluginTraits(plugin).spansAllocations),
      holes: options.spanHoles ?? single,
    };
    const living = spans.holes && arena.memory === "device" ? await livingAtRest(arena) : livingOf(arena);
    const pins = living.allocations;
    if (pins.length === 0)
      throw errorOf("ERR_NIXL_REGISTER", "the arena has no allocation that could be registered", { facts: { plugin, length: 0 } });
    const regions = await cutRegions(arena, living, spans, plugin);
    const full: Pieces = { ...memory, address: regions.address, length: regions.length };
    const number = await awaitNative(() => this.native.register(row, full, arena.native, pins, null));
    return new Registration(this, number, full, plugin, undefined, regions);
  }

  /**
   * Makes the first `bytes` bytes of a file known to a plugin. The registration holds a descriptor
   * of its own, which is the `device` of its `pieces`, and of the pieces of a transfer that reads
   * it.
   * @param file path, or descriptor number or FileHandle, which is duplicated before the call
   *   returns and may be closed at once
   * @param bytes default: all of it
   * @throws ERR_OPTION_INVALID, ERR_TRANSFER_OPEN, ERR_NIXL_REGISTER
   */
  async registerFile(file: string | number | FileHandle, bytes?: number, plugin?: string): Promise<Registration> {
    this.#requireOpen();
    const row = this.#row(plugin);
    const source = typeof file === "string" ? await awaitNative(() => addon().openFile(file)) : duplicateFile("registerFile", file);
    try {
      return await this.#registerFile(source, bytes ?? source.size, row, undefined);
    } finally {
      source.close();
    }
  }

  /**
   * The same for a file that is open already. Memory that its reads go to stays pinned until the
   * registration is closed.
   * @internal
   */
  async registerOpenFile(file: NativeFile, bytes: number, plugin?: string, pinned?: PinnedMemory): Promise<Registration> {
    this.#requireOpen();
    return this.#registerFile(file, bytes, this.#row(plugin), pinned);
  }

  async #registerFile(file: NativeFile, bytes: number, row: number, pinned: PinnedMemory | undefined): Promise<Registration> {
    requireInteger("bytes", bytes, { min: 0 });
    const pieces: Pieces = { kind: "FILE", device: file.number, address: BigUint64Array.of(0n), length: Float64Array.of(bytes) };
    const pins = pinned === undefined ? null : BigUint64Array.of(pinned.address, BigInt(pinned.length));
    const { name } = file;
    const arena = pinned?.arena.native ?? null;
    try {
      const number = await awaitNative(() => this.native.register(row, pieces, arena, pins, file));
      return new Registration(this, number, pieces, entryOf(this.plugins, row), name);
    } catch (thrown) {
      throw withFile(thrown, name);
    }
  }

  /**
   * Makes memory known, in pieces that all lie within one allocation.
   * @internal
   */
  async registerPieces(pieces: Pieces, plugin: string, pinned: PinnedMemory): Promise<Registration> {
    this.#requireOpen();
    const row = this.#row(plugin);
    const pins = BigUint64Array.of(pinned.address, BigInt(pinned.length));
    const number = await awaitNative(() => this.native.register(row, pieces, pinned.arena.native, pins, null));
    return new Registration(this, number, pieces, entryOf(this.plugins, row), undefined);
  }

  /**
   * Prepares a transfer between registered memory of this agent and a registered file, or memory of
   * another agent.
   * @throws ERR_NIXL_NOT_REGISTERED when a local piece lies in none of the registrations given;
   *   ERR_NIXL_TRANSFER, ERR_NIXL_BROKEN
   */
  async createTransfer(options: NixlTransferOptions): Promise<Transfer> {
    this.#requireOpen();
    return Transfer.create(this, this.#row(options.plugin), options);
  }

  /**
   * Aborts transfers, waits until nothing is in flight, undoes everything and ends. Closing again
   * waits for the same end.
   * @throws ERR_TRANSFER_STUCK when something is still in flight after `closeTimeoutMs` (the end
   *   comes later all the same, see `ended`); ERR_NIXL_RELEASE, ERR_NIXL_DEREGISTER,
   *   ERR_NIXL_CLOSE: the first of what could not be given back
   */
  async close(): Promise<void> {
    this.beginClose();
    const settled = this.ended.catch(() => {});
    if (!(await keepingAlive(within(settled, this.#closeTimeoutMs)))) {
      const message = `transfers of the agent ${JSON.stringify(this.name)} were still in flight ${this.#closeTimeoutMs} ms after it was closed`;
      throw errorOf("ERR_TRANSFER_STUCK", message, { facts: { agent: this.name } });
    }
    await this.ended;
  }

  /** @internal Starts the end without waiting for it. */
  beginClose(): void {
    if (this.#closing) return;
    this.#closing = true;
    this.native.close((failure) => {
      publish({ event: "nixl.agent-ended", name: this.name, failure: failure ?? null });
      if (failure === null || failure === undefined) this.#end.resolve();
      else this.#end.reject(fromNative(failure));
    });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #requireOpen(): void {
    if (this.#closing) throw errorOf("ERR_NIXL_CLOSED", `the agent ${JSON.stringify(this.name)} is closed`);
  }

  /** Row of a plugin; the first when none is named. */
  #row(plugin: string | undefined): number {
    const row = plugin === undefined ? 0 : this.plugins.indexOf(plugin);
    if (row >= 0) return row;
    const message = `the agent ${JSON.stringify(this.name)} has no plugin ${plugin}: it was made with ${this.plugins.join(", ")}`;
    throw errorOf("ERR_OPTION_UNKNOWN", message, { facts: { option: "plugin", value: plugin } });
  }
}

/** How the memory of an arena is told to NIXL. @throws ERR_ARENA_NOT_LOADABLE */
export function memoryOf(arena: VmmArena): { readonly kind: "DRAM" | "VRAM"; readonly device: number } {
  if (arena.memory === "host") return { kind: "DRAM", device: 0 };
  const device = cudaDeviceNumber(arena.device);
  if (arena.memory === "device" && device !== undefined) return { kind: "VRAM", device };
  const message = `NIXL can use memory of the host or of a device cuda:N; this arena's memory is "${arena.memory}" on ${arena.device}`;
  throw errorOf("ERR_ARENA_NOT_LOADABLE", message, { facts: { device: arena.device } });
}

function withFile(thrown: unknown, file: string): unknown {
  if (thrown instanceof Error && !("file" in thrown)) Object.defineProperty(thrown, "file", { value: file, enumerable: true });
  return thrown;
}

function requireOptions(options: NixlAgentOptions): void {
  if (typeof options?.name !== "string" || options.name === "") throw optionInvalid("name", "a text that is not empty", options?.name);
  const plugins = Object.entries(options.plugins ?? {});
  if (plugins.length === 0) throw optionInvalid("plugins", "an object with at least one plugin's name", options.plugins);
  for (const [name, parameters] of plugins) {
    const texts = typeof parameters === "object" && Object.values(parameters).every((value) => typeof value === "string");
    if (!texts) throw optionInvalid(`plugins.${name}`, "an object of texts", parameters);
  }
  const { listenPort, closeTimeoutMs } = options;
  if (listenPort !== undefined) requireInteger("listenPort", listenPort, { min: 1, max: 65_535 });
  if (closeTimeoutMs !== undefined && !(closeTimeoutMs >= 0 && closeTimeoutMs < 2 ** 31)) {
    throw optionInvalid("closeTimeoutMs", "a number of milliseconds", closeTimeoutMs);
  }
}
