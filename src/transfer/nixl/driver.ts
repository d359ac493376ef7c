import { entryOf } from "../../columns.js";
import { maxChunkKib } from "../../envs.js";
import type { ModelExpressError } from "../../errors.js";
import { publish } from "../../events.js";
import type { NativeFile, TransferFiles, TransferPieces } from "../../native/addon.js";
import { awaitNative } from "../../native/failure.js";
import { addon } from "../../native/load.js";
import { addressBounds } from "../addresses.js";
import { ConductedBatch } from "../conducted-batch.js";
import type {
  BatchSummary,
  ForecastBatch,
  ForecastWay,
  NixlBatchSummary,
  ReadPath,
  Transfer,
  TransferBatch,
  TransferDriver,
} from "../driver.js";
import { bytesOfThread, type DriverBytes, noDriverBytes, type ReadShape, readAheadOf } from "../driver-bytes.js";
import { directBlocks, identityOf, largestBlock } from "../files.js";
import { GdsCount } from "../gds/path-statistics.js";
import { NixlAgent } from "./agent.js";
import { cutChunks, cutWindows } from "./chunks.js";
import { pluginTraits, threadParameters } from "./plugins.js";
import { publishReader } from "./reader-event.js";
import { registrationLimit, windowBytesWithin } from "./registration-limit.js";
import { startWindows, type WindowsOptions, type WindowsSummary, windowsInFlight } from "./windows.js";

const maxReadableBytes = maxChunkKib * 1024;
const windowChunks = 256;
/**
 * Reads that the POSIX plugin can have in flight; it makes room for each when it is made, 65536 by
 * default.
 */
const posixReads = windowChunks * windowsInFlight;

/**
 * Reads by a plugin of NIXL's, with an agent for each batch, so that a failure of one disturbs no
 * other.
 */
export const nixlDriver: TransferDriver = {
  name: "nixl",
  capabilities: { memory: ["host", "device"], copies: true, registrable: true },
  takes: nixlTakes,
  forecast: nixlForecast,
  submit: (batch) => submitNixl(batch),
};

/** NIXL, UCX and a plugin, loaded and with an agent: their data and what malloc keeps of it. */
const libraryBytes = 48 * 2 ** 20;

/** Into memory of the host the plugin POSIX reads, through the page cache. */
function nixlTakes(shape: ReadShape): DriverBytes {
  const { bytes, threads, memory } = shape;
  if (bytes === 0) return noDriverBytes;
  const ringBytes = memory === "host" ? readAheadOf(shape, bytes, threads) : 0;
  return { ...noDriverBytes, threadBytes: (1 + threads) * bytesOfThread, ringBytes, libraryBytes };
}

/**
 * Starts a batch.
 * @param onRefused told of each file that the plugin cannot register, which is then left out;
 *   without it that is a failure
 */
export function submitNixl(batch: TransferBatch, onRefused?: WindowsOptions["onRefused"]): Transfer {
  return new NixlBatch(batch, onRefused);
}

function nixlForecast(batch: ForecastBatch): readonly ForecastWay[] {
  const plugin = pluginOf(batch.plugin, batch.memory);
  const maxReadBytes = Math.min(batch.maxChunkBytes, maxReadableBytes);
  const chunks = chunksOf(batch, maxReadBytes);
  const windows = cutWindows(chunks, windowBytesOf(batch, plugin), windowChunks).length;
  if (windows === 0) return [];
  return [{ path: "nixl", of: `all, by ${plugin}`, reads: chunks.length.length, maxReadBytes, alignBytes: largestBlock(batch), windows }];
}

/** The plugin that reads a batch. */
function pluginOf(asked: string | undefined, memory: string): string {
  return asked ?? (memory === "device" ? "GDS_MT" : "POSIX");
}

type Cut = Pick<TransferBatch, "files" | "pieces" | "threads" | "maxChunkBytes" | "gds">;

function chunksOf({ files, pieces }: Cut, maxChunkBytes: number): TransferPieces {
  return cutChunks(pieces, maxChunkBytes, directBlocks(files));
}

function threadsOf({ gds, threads }: Cut, plugin: string): number {
  return (plugin === "GDS_MT" ? gds?.threads : undefined) ?? threads;
}

function windowBytesOf(batch: Cut, plugin: string): number {
  return windowBytesWithin(registrationLimit(plugin), threadsOf(batch, plugin) * Math.min(batch.maxChunkBytes, maxReadableBytes));
}

class NixlBatch extends ConductedBatch<BatchSummary> {
  readonly #batch: TransferBatch;
  readonly #plugin: string;
  readonly #refused = new Set<number>();
  readonly #unkept: Uint8Array;
  readonly #onRefused: WindowsOptions["onRefused"];
  #windows: Transfer<WindowsSummary> | undefined;

  constructor(batch: TransferBatch, onRefused: WindowsOptions["onRefused"]) {
    super();
    this.#batch = batch;
    this.#plugin = pluginOf(batch.plugin, batch.arena.memory);
    this.#onRefused = onRefused;
    this.#unkept = new Uint8Array(batch.files.paths.length);
    this.conduct(this.#run());
  }

  progressBytes(): number {
    return this.#windows?.progressBytes() ?? 0;
  }

  async #run(): Promise<BatchSummary | undefined> {
    const begin = performance.now();
    const plugin = this.#plugin;
    const chunks = chunksOf(this.#batch, this.#maxChunkBytes());
    if (chunks.length.length === 0) return this.#summary(0);
    const { arena, maxChunkBytes } = this.#batch;
    const count = pluginTraits(plugin).cufile && arena.memory === "device" ? new GdsCount() : undefined;
    let agent: NixlAgent | undefined;
    try {
      agent = await NixlAgent.create({ name: "mx-load", plugins: { [plugin]: this.#parameters(plugin) }, progressThread: false });
      publishReader({
        agent: agent.name,
        plugin,
        device: arena.device,
        threads: threadsOf(this.#batch, plugin),
        maxChunkBytes: Math.min(maxChunkBytes, maxReadableBytes),
      });
      if (!this.failed) this.#windows = this.follow(this.#start(agent, plugin, chunks));
      const moved = await this.#windows?.done;
      await this.#windows?.settled;
      const path = moved !== undefined && moved.bytes > 0 ? count?.end(moved.bytes) : undefined;
      await agent.close();
      if (moved === undefined) return undefined;
      const { windows, registrations, registeredBytes, registerMs, transferMs } = moved;
      const nixl: NixlBatchSummary = {
        plugin,
        windows,
        registrations: { count: registrations, bytes: registeredBytes, ms: registerMs },
        transferMs,
        ms: performance.now() - begin,
        ...(path === undefined ? {} : { path }),
      };
      return { ...this.#summary(moved.chunks), nixl };
    } catch (error) {
      this.fail(error);
      // The agent's end waits for whatever is still in flight.
      agent?.beginClose();
      await this.#windows?.settled;
      await agent?.ended.catch(() => {});
      return undefined;
    } finally {
      count?.forget();
    }
  }

  #parameters(plugin: string): Readonly<Record<string, string>> {
    if (plugin === "POSIX") return { ios_pool_size: String(posixReads) };
    return threadParameters(plugin, threadsOf(this.#batch, plugin));
  }

  /** What is asked for, as far as plugins can read it at a time. */
  #maxChunkBytes(): number {
    const { maxChunkBytes } = this.#batch;
    if (maxChunkBytes <= maxReadableBytes) return maxChunkBytes;
    publish({ event: "option.clamped", option: "maxChunkBytes", given: maxChunkBytes, used: maxReadableBytes });
    return maxReadableBytes;
  }

  #start(agent: NixlAgent, plugin: string, chunks: TransferPieces): Transfer<WindowsSummary> {
    const { arena, files, gds } = this.#batch;
    const { begin, end } = addressBounds(chunks.address, chunks.length) ?? { begin: arena.base, end: arena.base };
    const allocation = { address: begin, length: Number(end - begin) };
    return startWindows({
      agent,
      plugin,
      arena,
      allocation,
      open: (file) => this.#open(files, file),
      chunks,
      windowBytes: windowBytesOf(this.#batch, plugin),
      windowChunks,
      windowTimeoutMs: plugin === "GDS_MT" ? gds?.timeoutMs : undefined,
      registration: "chunks",
      ...(this.#onRefused === undefined ? {} : { onRefused: (file, error) => this.#refuse(file, error) }),
    });
  }

  /** Opens a file in the state that the plan was made from. */
  async #open(files: TransferFiles, file: number): Promise<NativeFile> {
    const native = await awaitNative(() =>
      addon().openFile(entryOf(files.paths, file), identityOf(files, [file]), entryOf(files.size, file)),
    );
    this.#unkept[file] = native.unkept;
    return native;
  }

  #refuse(file: number, error: ModelExpressError): void {
    this.#refused.add(file);
    this.#onRefused?.(file, error);
  }

  #summary(reads: number): BatchSummary {
    const { files, pieces } = this.#batch;
    const count = files.paths.length;
    const bufferedBytes = new Float64Array(count);
    const ways = new Array<ReadPath | undefined>(count).fill(undefined);
    for (const [row, length] of pieces.length.entries()) {
      const file = entryOf(pieces.file, row);
      if (length === 0 || this.#refused.has(file)) continue;
      bufferedBytes[file] = entryOf(bufferedBytes, file) + length;
      ways[file] = "nixl";
    }
    return {
      bufferedBytes,
      cachedBytes: new Array<null>(count).fill(null),
      directBytes: new Float64Array(count),
      fallback: new Array<string>(count).fill(""),
      reads,
      directByThreads: new Uint8Array(count),
      unkept: this.#unkept,
      ways,
    };
  }
}
