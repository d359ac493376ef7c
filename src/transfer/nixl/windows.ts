import { setImmediate } from "node:timers/promises";
import type { VmmArena } from "../../arena/arena.js";
import { valueIn } from "../../columns.js";
import { errorOf, hasCode, type ModelExpressError } from "../../errors.js";
import type { NativeFile, TransferPieces } from "../../native/addon.js";
import { awaitNative } from "../../native/failure.js";
import { ConductedBatch } from "../conducted-batch.js";
import type { Transfer } from "../driver.js";
import { keepingAlive } from "../settled.js";
import { memoryOf, type NixlAgent, type PinnedMemory } from "./agent.js";
import { cutWindows, type Window } from "./chunks.js";
import type { Pieces } from "./descriptors.js";
import type { Registration } from "./registration.js";
import type { Transfer as NixlTransfer } from "./transfer.js";

/**
 * Windows in flight at one time: the second keeps the plugin's threads busy while the first one's
 * slowest chunk ends.
 */
export const windowsInFlight = 2;

export interface WindowsOptions {
  readonly agent: NixlAgent;
  readonly plugin: string;
  readonly arena: VmmArena;
  /** The allocation that all chunks go to. Pinned until everything has settled. */
  readonly allocation: { readonly address: bigint; readonly length: number };
  /**
   * Opens a file by its number in `chunks.file`, when its first window is due; it is closed after
   * its last.
   */
  readonly open: (file: number) => Promise<NativeFile>;
  /** No longer than the plugin takes, ascending by file. */
  readonly chunks: TransferPieces;
  readonly windowBytes: number;
  readonly windowChunks: number;
  /** Longest time that the reads of one window may take. Default: no limit. */
  readonly windowTimeoutMs?: number | undefined;
  /** Registers the bases that are read, window by window, or the allocation once. */
  readonly registration: "chunks" | "whole";
  /**
   * Called for a file that the plugin cannot register: its windows are then left out. Default: that
   * is a failure.
   */
  readonly onRefused?: (file: number, error: ModelExpressError) => void;
  /** Called once, at the first failure or abort, before `settled`. */
  readonly onFailure?: () => void;
}

interface SourceFile {
  readonly native: NativeFile;
  readonly registration: Registration;
}

/** What the windows of a batch did, without those that were left out. */
export interface WindowsSummary {
  readonly bytes: number;
  readonly windows: number;
  readonly chunks: number;
  /** Registrations of files and memory. */
  readonly registrations: number;
  /** Bytes of memory registered, over all windows. */
  readonly registeredBytes: number;
  /**
   * Milliseconds in registering and undoing it, and in transfers; windows overlap, so the sum can
   * exceed the whole.
   */
  readonly registerMs: number;
  readonly transferMs: number;
}

/**
 * Reads chunks of files into memory through a NIXL plugin, window by window, so that an abort takes
 * effect within a window. Set-up that fails undoes what was done, in reverse; nothing is unpinned
 * before it is released and deregistered.
 */
export function startWindows(options: WindowsOptions): Transfer<WindowsSummary> {
  return new Windows(options);
}

class Windows extends ConductedBatch<WindowsSummary> {
  readonly #options: WindowsOptions;
  readonly #windows: readonly Window[];
  /** Windows of each file that are not over. */
  readonly #left = new Map<number, number>();
  /** The file that comes after each. */
  readonly #nextFile = new Map<number, number>();
  readonly #files = new Map<number, Promise<SourceFile>>();
  readonly #sums = { bytes: 0, windows: 0, chunks: 0, registrations: 0, registeredBytes: 0, registerMs: 0, transferMs: 0 };
  #next = 0;

  constructor(options: WindowsOptions) {
    super();
    this.#options = options;
    this.#windows = cutWindows(options.chunks, options.windowBytes, options.windowChunks);
    let last: number | undefined;
    for (const { file } of this.#windows) {
      this.#left.set(file, (this.#left.get(file) ?? 0) + 1);
      if (last !== undefined && last !== file) this.#nextFile.set(last, file);
      last = file;
    }
    this.conduct(this.#run());
  }

  progressBytes(): number {
    return this.#sums.bytes;
  }

  protected override onFailure(): void {
    this.#options.onFailure?.();
  }

  /**
   * Every registration pins the allocation: between two windows the file's does, and one that
   * cannot be undone keeps it from being unmapped.
   */
  get #pinned(): PinnedMemory {
    return { arena: this.#options.arena, ...this.#options.allocation };
  }

  async #run(): Promise<WindowsSummary> {
    let whole: Registration | undefined;
    try {
      if (this.#windows.length > 0 && this.#options.registration === "whole") whole = await this.#registerWhole();
    } catch (error) {
      this.fail(error);
    }
    const movers = Array.from({ length: windowsInFlight }, () => this.#moveWindows(whole));
    await Promise.all(movers);
    if (whole !== undefined) await this.#undo(whole);
    for (const file of [...this.#files.keys()].reverse()) await this.#closeFile(file);
    return Object.freeze({ ...this.#sums });
  }

  /** Moves window after window. Never rejects: failures are recorded. */
  async #moveWindows(whole: Registration | undefined): Promise<void> {
    while (!this.failed) {
      const window = this.#windows[this.#next++];
      if (window === undefined) return;
      await this.#move(window, whole);
    }
  }

  async #move(window: Window, whole: Registration | undefined): Promise<void> {
    const source = await this.#admitted(window.file);
    if (source !== undefined) await this.#read(window, source.registration, whole);
    const left = valueIn(this.#left, window.file) - 1;
    this.#left.set(window.file, left);
    if (left === 0) await this.#closeFile(window.file);
  }

  /** A file that can be read; undefined where it was refused or failed. */
  async #admitted(file: number): Promise<SourceFile | undefined> {
    try {
      return await this.#file(file);
    } catch (error) {
      const { onRefused } = this.#options;
      if (onRefused !== undefined && hasCode(error, "ERR_NIXL_REGISTER")) onRefused(file, error);
      else this.fail(error);
      return undefined;
    }
  }

  async #read(window: Window, source: Registration, whole: Registration | undefined): Promise<void> {
    const { agent, plugin, chunks } = this.#options;
    const local: Pieces = {
      ...memoryOf(this.#options.arena),
      address: chunks.address.subarray(window.begin, window.end),
      length: chunks.length.subarray(window.begin, window.end),
    };
    let own: Registration | undefined;
    let transfer: NixlTransfer | undefined;
    let posted = false;
    try {
      own = whole === undefined ? await this.#timed("registerMs", () => agent.registerPieces(local, plugin, this.#pinned)) : undefined;
      if (own !== undefined) this.#count(own);
      const memory = own ?? whole;
      const remote: Pieces = {
        kind: "FILE",
        device: source.pieces.device,
        address: BigUint64Array.from(chunks.offset.subarray(window.begin, window.end), BigInt),
        length: local.length,
      };
      const registrations = memory === undefined ? [source] : [memory, source];
      transfer = await agent.createTransfer({ operation: "read", local, remote, registrations, plugin });
      if (!this.failed) {
        posted = true;
        this.follow(transfer);
        transfer.post();
        this.#openNext(window.file);
        const { done } = transfer;
        await this.#timed("transferMs", () => this.#inTime(done, window));
        this.#sums.bytes += window.bytes;
        this.#sums.windows++;
        this.#sums.chunks += window.end - window.begin;
      }
    } catch (error) {
      // A broken agent was broken by a failure that is told at the same time, on a way of its own:
      // that one is the cause.
      if (hasCode(error, "ERR_NIXL_BROKEN")) await setImmediate();
      this.fail(error);
    }
    // From here on in reverse; what fails is told, and the rest goes on.
    if (transfer !== undefined) {
      // After a success it comes at once, and somebody waits; reads that were given up keep no
      // process alive.
      if (posted) await (this.failed ? transfer.settled : keepingAlive(transfer.settled));
      this.forget(transfer);
      await this.#undo({ close: () => transfer.release() });
    }
    if (own !== undefined) await this.#undo(own);
  }

  /** Waits for a window's reads; late ones are the failure of the batch, which aborts them. */
  async #inTime(reads: Promise<void>, { bytes }: Window): Promise<void> {
    const { windowTimeoutMs, plugin } = this.#options;
    if (windowTimeoutMs === undefined) return reads;
    const late = () => {
      const message = `${plugin} had not read a window of ${bytes} bytes after ${windowTimeoutMs} ms (MX_GDS_TIMEOUT)`;
      this.fail(errorOf("ERR_TRANSFER_TIMEOUT", message, { facts: { timeoutMs: windowTimeoutMs, bytes: 0, totalBytes: bytes } }));
    };
    const timer = setTimeout(late, windowTimeoutMs);
    try {
      await reads;
    } finally {
      clearTimeout(timer);
    }
  }

  /**
   * Registers the file after this one, so that it is ready when the present one's reads end. What
   * fails is seen when its turn comes.
   */
  #openNext(file: number): void {
    const next = this.#nextFile.get(file);
    if (next !== undefined && valueIn(this.#left, next) > 0) this.#file(next).catch(() => {});
  }

  /**
   * A file and its registration, made once: when the file before it is being read, or by its own
   * first window.
   */
  #file(file: number): Promise<SourceFile> {
    let source = this.#files.get(file);
    if (source === undefined) {
      source = this.#openFile(file);
      this.#files.set(file, source);
    }
    return source;
  }

  async #openFile(file: number): Promise<SourceFile> {
    const { agent, plugin, open } = this.#options;
    const native = await open(file);
    try {
      const registration = await this.#timed("registerMs", () => agent.registerOpenFile(native, native.size, plugin, this.#pinned));
      this.#sums.registrations++;
      return { native, registration };
    } catch (error) {
      native.close();
      throw error;
    }
  }

  async #closeFile(file: number): Promise<void> {
    const pending = this.#files.get(file);
    this.#files.delete(file);
    const source = await pending?.catch(() => undefined);
    if (source === undefined) return;
    await this.#undo(source.registration);
    try {
      if (!this.failed) await awaitNative(() => source.native.requireUnchanged());
    } catch (error) {
      this.fail(error);
    }
    source.native.close();
  }

  async #registerWhole(): Promise<Registration> {
    const { agent, plugin, arena, allocation } = this.#options;
    const pieces = { address: BigUint64Array.of(allocation.address), length: Float64Array.of(allocation.length) };
    const whole = await this.#timed("registerMs", () => agent.registerPieces({ ...memoryOf(arena), ...pieces }, plugin, this.#pinned));
    this.#count(whole);
    return whole;
  }

  #count(registration: Registration): void {
    this.#sums.registrations++;
    this.#sums.registeredBytes += registration.byteLength;
  }

  async #undo(what: { close(): Promise<void> }): Promise<void> {
    try {
      await this.#timed("registerMs", () => what.close());
    } catch (error) {
      this.failCleanUp(error);
    }
  }

  async #timed<T>(sum: "registerMs" | "transferMs", work: () => Promise<T>): Promise<T> {
    const begin = performance.now();
    try {
      return await work();
    } finally {
      this.#sums[sum] += performance.now() - begin;
    }
  }
}
