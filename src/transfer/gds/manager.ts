import type { FileHandle } from "node:fs/promises";
import { requireNotAborted } from "../../aborts.js";
import { type Allocation, releaseInBackground } from "../../arena/allocation.js";
import type { VmmArena } from "../../arena/arena.js";
import { requireInteger } from "../../arguments.js";
import { errorOf } from "../../errors.js";
import { publish } from "../../events.js";
import type { NativeFile } from "../../native/addon.js";
import { awaitNative } from "../../native/failure.js";
import { addon } from "../../native/load.js";
import { addressColumn } from "../addresses.js";
import { allocateBefore } from "../allocate-before.js";
import type { Transfer } from "../driver.js";
import { duplicateFile } from "../duplicate-file.js";
import { NixlAgent } from "../nixl/agent.js";
import { cutChunks } from "../nixl/chunks.js";
import { pluginTraits, threadParameters } from "../nixl/plugins.js";
import { publishReader } from "../nixl/reader-event.js";
import { registrationLimit, windowBytesWithin } from "../nixl/registration-limit.js";
import { startWindows, type WindowsSummary } from "../nixl/windows.js";
import { keepingAlive } from "../settled.js";
import { awaitTransfer, within } from "../waiting.js";
import { GdsBatch, type GdsReport } from "./batch.js";
import { type GdsOptions, type GdsSettings, gdsSettings } from "./options.js";
import { GdsCount } from "./path-statistics.js";
import { type GdsRange, placeRanges } from "./ranges.js";
import { requireDevice } from "./require-device.js";

/**
 * Most chunks in one window: many small tensors still make windows that an abort does not wait long
 * for.
 */
const windowChunks = 1024;

export interface BatchLoadOptions {
  /** Stops the batch; its reason is what the promise rejects with. */
  readonly signal?: AbortSignal;
  /** Arena to allocate in, on the manager's device. Default: an arena of the batch's own. */
  readonly into?: VmmArena;
}

/**
 * Reads ranges of files straight to a device through NIXL: by the plugin GDS_MT (GPUDirect Storage
 * on several threads), or another.
 *
 * `new` touches nothing but the environment's variables; `initialize()` loads NIXL and makes the
 * agent; {@link GdsTransferManager.create} is both. Batches may run side by side; they outlive the
 * manager.
 */
export class GdsTransferManager {
  /**
   * @internal A function among the fields: `structuredClone` and `postMessage` refuse it, and quote
   *   it, instead of giving an empty object.
   */
  readonly cannotBeCloned = () => "A GdsTransferManager stays in its thread: make one there";
  readonly #settings: GdsSettings;
  /** The agent in use, or on its way. */
  #agent: Promise<NixlAgent> | undefined;
  #initialized = false;
  /** Agents of one's own that are ending. */
  readonly #retired = new Set<NixlAgent>();
  readonly #running = new Set<Transfer<unknown>>();
  #ending: Promise<void> = Promise.resolve();

  /** @throws ERR_OPTION_INVALID, ERR_OPTION_UNKNOWN, ERR_ENV_INVALID */
  constructor(options: GdsOptions) {
    this.#settings = gdsSettings(options);
  }

  /** A manager that is initialized. @throws as the constructor and {@link initialize} */
  static async create(options: GdsOptions): Promise<GdsTransferManager> {
    const manager = new GdsTransferManager(options);
    await manager.initialize();
    return manager;
  }

  get agentName(): string {
    return this.#settings.agentName;
  }

  get device(): string {
    return this.#settings.device;
  }

  get plugin(): string {
    return this.#settings.plugin;
  }

  get threads(): number {
    return this.#settings.threads;
  }

  /** Bytes. */
  get maxChunkBytes(): number {
    return this.#settings.maxChunkBytes;
  }

  get timeoutMs(): number {
    return this.#settings.timeoutMs;
  }

  get initialized(): boolean {
    return this.#initialized;
  }

  /**
   * Makes the agent. Callers at the same time share one attempt; when it is there already nothing
   * happens; after `shutdown()` it is made anew.
   * @throws ERR_NIXL_NOT_FOUND, ERR_NIXL_AGENT, ERR_NIXL_PLUGIN; the next call tries again.
   *   ERR_GDS_NOT_INITIALIZED when `shutdown()` overtook it
   */
  async initialize(): Promise<void> {
    const agent = this.#currentAgent();
    await agent;
    if (this.#agent !== agent) throw this.#notInitialized("initialize() was overtaken by shutdown()");
    this.#initialized = true;
  }

  /**
   * Loads ranges of one file, each into a buffer of its own: one call, one result, all of them in
   * parallel.
   *
   * @param file descriptor number, FileHandle or path; a descriptor is duplicated before the call
   *   returns, and may be closed at once
   * @param fileBytes size of the file; no range may end behind it
   * @param ranges `[offset, bytes]`, in any order, overlapping or not
   * @returns buffers in the order of `ranges`
   * @throws ERR_GDS_NOT_INITIALIZED; ERR_OPTION_INVALID, ERR_GDS_PAST_END,
   *   ERR_GDS_REGISTRATION_LIMIT before anything is registered or allocated; ERR_ABORTED;
   *   ERR_TRANSFER_TIMEOUT; ERR_NIXL_REGISTER, ERR_NIXL_TRANSFER, ERR_TRANSFER_FILE_CHANGED, ...
   *   With reads still in flight the error's `settled` resolves when they have ended, and the
   *   memory has been given back.
   */
  async batchLoadFile(
    file: number | FileHandle | string,
    fileBytes: number,
    ranges: readonly GdsRange[],
    options: BatchLoadOptions = {},
  ): Promise<GdsBatch> {
    const begin = performance.now();
    if (!this.#initialized) throw this.#notInitialized("batchLoadFile() before initialize(), or after shutdown()");
    requireNotAborted(options.signal);
    // No await before the descriptor is duplicated.
    const source = typeof file === "string" ? await awaitNative(() => addon().openFile(file)) : duplicateFile("batchLoadFile", file);
    try {
      return await this.#load(source, fileBytes, ranges, options, begin);
    } finally {
      source.close();
    }
  }

  /**
   * Stops batches in flight, waits for their reads, and ends the manager's own agent. Idempotent;
   * `initialize()` works again afterwards.
   * @throws ERR_TRANSFER_STUCK when reads are still in flight after `closeTimeoutMs`; ERR_NIXL_...:
   *   what could not be given back
   */
  shutdown(): Promise<void> {
    this.#initialized = false;
    const pending = this.#agent;
    this.#agent = undefined;
    const ending = this.#end(pending);
    // One after the other, so that a second call does not resolve before the first has ended.
    this.#ending = Promise.all([this.#ending.catch(() => {}), ending]).then(() => undefined);
    return this.#ending;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.shutdown();
  }

  async #end(pending: Promise<NixlAgent> | undefined): Promise<void> {
    const running = [...this.#running];
    for (const transfer of running) transfer.abort();
    const agent = await pending?.catch(() => undefined);
    if (agent !== undefined && this.#settings.agent === undefined) this.#retire(agent);
    const ends = await Promise.allSettled([...this.#retired].map((retired) => retired.close()));
    for (const end of ends) if (end.status === "rejected") throw end.reason;
    const settled = Promise.all(running.map((transfer) => transfer.settled));
    if (await keepingAlive(within(settled, this.#settings.closeTimeoutMs))) {
      publish({ event: "gds.shutdown", agent: this.agentName, device: this.device, stoppedBatches: running.length });
      return;
    }
    const message = `reads were still in flight ${this.#settings.closeTimeoutMs} ms after shutdown() of ${JSON.stringify(this.agentName)}`;
    throw errorOf("ERR_TRANSFER_STUCK", message, { facts: { agent: this.agentName } });
  }

  /** The agent, made when there is none, or when the last one ended after a failure. */
  #currentAgent(): Promise<NixlAgent> {
    if (this.#agent === undefined) {
      const agent = this.#makeAgent();
      this.#agent = agent;
      agent.catch(() => {
        if (this.#agent === agent) this.#agent = undefined;
      });
    }
    return this.#agent;
  }

  async #makeAgent(): Promise<NixlAgent> {
    const { agent, plugin, agentName, device, threads, maxChunkBytes, library, closeTimeoutMs } = this.#settings;
    if (agent !== undefined) {
      if (agent.plugins.includes(plugin)) return agent;
      const message = `the agent ${JSON.stringify(agent.name)} given has the plugins ${agent.plugins.join(", ")}, and not ${plugin}`;
      throw errorOf("ERR_OPTION_CONFLICT", message, { facts: { option: "agent", plugin } });
    }
    const plugins = { [plugin]: threadParameters(plugin, threads) };
    const made = await NixlAgent.create({
      name: agentName,
      plugins,
      progressThread: false,
      closeTimeoutMs,
      ...(library === undefined ? {} : { library }),
    });
    publishReader({ agent: agentName, plugin, device, threads, maxChunkBytes });
    return made;
  }

  async #load(
    source: NativeFile,
    fileBytes: number,
    ranges: readonly GdsRange[],
    options: BatchLoadOptions,
    begin: number,
  ): Promise<GdsBatch> {
    const { device, plugin, registration, maxChunkBytes, timeoutMs } = this.#settings;
    requireFileBytes(source, fileBytes);
    const { at, totalBytes } = placeRanges(ranges, fileBytes, source.name);
    const windowBytes = this.#windowBytes(totalBytes, source.name);
    const lengths = ranges.map(([, bytes]) => bytes);
    const facts = { file: source.name, device, plugin, registration, allocationBytes: totalBytes };
    if (totalBytes === 0) {
      const nothing = { bytes: 0, windows: 0, chunks: 0, registrations: 0, registeredBytes: 0, registerMs: 0, transferMs: 0 };
      return new GdsBatch(undefined, at, lengths, {
        ...facts,
        ...nothing,
        totalMs: performance.now() - begin,
        ...uncounted(device, "nothing was read"),
      });
    }
    if (!this.#initialized) throw this.#notInitialized("shutdown() came while the file was opened");
    const agent = await this.#currentAgent();
    if (options.into !== undefined) requireDevice(device, options.into);
    const deadline = begin + timeoutMs;
    const memory = await allocateBefore({ signal: options.signal, deadline, timeoutMs }, { device, bytes: totalBytes, into: options.into });
    let transfer: Transfer<WindowsSummary>;
    try {
      if (!this.#initialized) throw this.#notInitialized("shutdown() came while memory was allocated");
      const pieces = {
        file: new Uint32Array(ranges.length),
        offset: Float64Array.from(ranges, ([offset]) => offset),
        length: Float64Array.from(lengths),
        address: addressColumn(memory.address, at),
      };
      transfer = startWindows({
        agent,
        plugin,
        arena: memory.arena,
        allocation: { address: memory.address, length: totalBytes },
        open: async () => source,
        chunks: cutChunks(pieces, maxChunkBytes),
        windowBytes,
        windowChunks,
        registration,
        onFailure: () => this.#afterFailure(agent),
      });
    } catch (error) {
      await releaseInBackground(memory).catch(() => {}); // Published.
      throw error;
    }
    this.#running.add(transfer);
    transfer.settled.then(() => this.#running.delete(transfer));
    const bytes = lengths.reduce((sum, length) => sum + length, 0);
    const count = device !== "host" && pluginTraits(plugin).cufile ? new GdsCount() : undefined;
    try {
      const summary = await awaitTransfer(transfer, { signal: options.signal, deadline, timeoutMs, totalBytes: bytes }, () =>
        this.#releaseAfterFailure(memory, agent),
      );
      const path = count?.end(bytes);
      const shown =
        path === undefined ? uncounted(device, `${plugin} does not read through cuFile`) : { path: path.taken, pathWhy: path.why };
      return new GdsBatch(memory, at, lengths, { ...facts, ...summary, totalMs: performance.now() - begin, ...shown });
    } finally {
      count?.forget();
    }
  }

  /** Bytes of a window. @throws ERR_GDS_REGISTRATION_LIMIT */
  #windowBytes(totalBytes: number, file: string): number {
    const { threads, maxChunkBytes, plugin, registration } = this.#settings;
    const limit = registrationLimit(plugin);
    const wanted = threads * maxChunkBytes;
    if (registration === "whole") {
      if (limit === undefined || totalBytes <= limit) return windowBytesWithin(undefined, wanted);
      const message = `registering ${totalBytes} bytes at once for ${file} exceeds the ${limit} bytes that cuFile's configuration allows`;
      throw errorOf("ERR_GDS_REGISTRATION_LIMIT", message, { facts: { file, length: totalBytes, limit } });
    }
    return windowBytesWithin(limit, wanted);
  }

  #notInitialized(what: string): Error {
    return errorOf("ERR_GDS_NOT_INITIALIZED", `${what}: the manager ${JSON.stringify(this.agentName)} is not initialized`, {
      facts: { agent: this.agentName },
    });
  }

  /**
   * An agent of one's own whose plugin may have left reads behind is ended, which waits for them.
   */
  #afterFailure(agent: NixlAgent): void {
    if (pluginTraits(this.#settings.plugin).strands) this.#giveUp(agent);
  }

  /** Memory that NIXL would not let go of is given back when the agent has ended. */
  async #releaseAfterFailure(memory: Allocation, agent: NixlAgent): Promise<void> {
    try {
      await releaseInBackground(memory);
    } catch {
      this.#giveUp(agent);
      await agent.ended.catch(() => {});
      try {
        await releaseInBackground(memory);
      } catch (error) {
        publish({ event: "gds.release-failed", error });
      }
    }
  }

  /** Ends an agent of one's own; the next batch makes a new one. */
  #giveUp(agent: NixlAgent): void {
    if (this.#settings.agent !== undefined) return;
    this.#agent = undefined;
    this.#retire(agent);
  }

  #retire(agent: NixlAgent): void {
    this.#retired.add(agent);
    agent.beginClose();
    const forget = () => this.#retired.delete(agent);
    agent.ended.then(forget, forget);
  }
}

/** The path of a batch that no counter watched. */
function uncounted(device: string, why: string): Pick<GdsReport, "path" | "pathWhy"> {
  return device === "host" ? { path: "host", pathWhy: "the buffers are in host memory" } : { path: "unknown", pathWhy: why };
}

function requireFileBytes(source: NativeFile, fileBytes: number): void {
  const { name: file, size } = source;
  requireInteger("fileBytes", fileBytes, { min: 0 });
  if (fileBytes <= size) return;
  const message = `${file} has ${size} bytes, fewer than the ${fileBytes} that batchLoadFile was told`;
  throw errorOf("ERR_GDS_PAST_END", message, { facts: { file, length: fileBytes, fileBytes: size } });
}
