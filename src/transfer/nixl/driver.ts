import { errorOf } from "../../errors.js";
import type { NativeFile, TransferFiles, TransferPieces, TransferSummary } from "../../native/addon.js";
import { awaitNative, callNative } from "../../native/failure.js";
import { addon } from "../../native/load.js";
import { deferred } from "../deferred.js";
import type { Transfer, TransferBatch, TransferDriver } from "../driver.js";
import { NixlAgent } from "./agent.js";
import { cutChunks } from "./chunks.js";
import { startWindows, type WindowsSummary, windowsInFlight } from "./windows.js";

const defaultPlugin = "POSIX";
/** Longest piece: see `maxChunkKib` of envs.ts. */
const maxPieceBytes = 2 ** 30;
const windowChunks = 256;
/** Reads that the POSIX plugin can have in flight; it makes room for each when it is made, 65536 by default. */
const posixReads = windowChunks * windowsInFlight;

/** Reads by a plugin of NIXL's, with an agent for each batch, so that a failure of one disturbs no other. */
export const nixlDriver: TransferDriver = {
  name: "nixl",
  capabilities: { memory: ["host"], copies: true, registrable: true },
  submit: (batch) => new NixlBatch(batch),
};

class NixlBatch implements Transfer {
  readonly done: Promise<TransferSummary>;
  readonly settled: Promise<void>;
  readonly #batch: TransferBatch;
  readonly #done = deferred<TransferSummary>();
  #windows: Transfer<WindowsSummary> | undefined;
  #aborted = false;

  constructor(batch: TransferBatch) {
    this.#batch = batch;
    this.done = this.#done.promise;
    this.done.catch(() => {});
    this.settled = this.#run();
  }

  progressBytes(): number {
    return this.#windows?.progressBytes() ?? 0;
  }

  abort(): void {
    this.#aborted = true;
    this.#done.reject(errorOf("ERR_TRANSFER_ABORTED", "the reads were stopped"));
    this.#windows?.abort();
  }

  /** Never rejects: failures go to `done`. */
  async #run(): Promise<void> {
    let agent: NixlAgent | undefined;
    try {
      const plugin = this.#batch.plugin ?? defaultPlugin;
      const chunks = cutChunks(this.#batch.pieces, Math.min(this.#batch.maxChunkBytes, maxPieceBytes));
      if (chunks.length.length === 0) {
        this.#done.resolve(summaryOf(this.#batch, 0));
        return;
      }
      agent = await NixlAgent.create({ name: "mx-load", plugins: { [plugin]: this.#parameters(plugin) }, progressThread: false });
      if (!this.#aborted) this.#windows = this.#start(agent, plugin, chunks);
      const reads = await this.#windows?.done;
      await this.#windows?.settled;
      await agent.close();
      if (reads !== undefined) this.#done.resolve(summaryOf(this.#batch, reads.chunks));
    } catch (error) {
      this.#done.reject(error);
      // The agent's end waits for whatever is still in flight.
      agent?.beginClose();
      await this.#windows?.settled;
      await agent?.ended.catch(() => {});
    }
  }

  #parameters(plugin: string): Readonly<Record<string, string>> {
    if (plugin === "POSIX") return { ios_pool_size: String(posixReads) };
    return plugin === "GDS_MT" ? { thread_count: String(this.#batch.threads) } : {};
  }

  #start(agent: NixlAgent, plugin: string, chunks: TransferPieces): Transfer<WindowsSummary> {
    const { arena, files, maxChunkBytes, threads } = this.#batch;
    let [begin, end] = [0n, 0n];
    for (const [row, address] of chunks.address.entries()) {
      if (row === 0 || address < begin) begin = address;
      const after = address + BigInt(chunks.length[row] ?? 0);
      if (after > end) end = after;
    }
    const allocation = { address: begin, length: Number(end - begin) };
    const windowBytes = threads * maxChunkBytes;
    return startWindows({
      agent,
      plugin,
      arena,
      allocation,
      open: (file) => openFile(files, file),
      chunks,
      windowBytes,
      windowChunks,
      registration: "chunks",
    });
  }
}

/** Opens a file in the state that the plan was made from. */
async function openFile({ paths, size, dev, ino, mtimeNs }: TransferFiles, row: number): Promise<NativeFile> {
  const file = await awaitNative(() => addon().openFile(paths[row] ?? ""));
  try {
    callNative(() => file.requirePlanned(size[row] ?? 0, dev[row] ?? 0n, ino[row] ?? 0n, mtimeNs.subarray(row, row + 1)));
    return file;
  } catch (error) {
    file.close();
    throw error;
  }
}

function summaryOf({ files, pieces }: TransferBatch, reads: number): TransferSummary {
  const count = files.paths.length;
  const bufferedBytes = new Float64Array(count);
  for (const [row, length] of pieces.length.entries()) {
    const file = pieces.file[row] ?? 0;
    bufferedBytes[file] = (bufferedBytes[file] ?? 0) + length;
  }
  return {
    bufferedBytes,
    cachedBytes: new Float64Array(count).fill(-1),
    directBytes: new Float64Array(count),
    fallback: new Array<string>(count).fill(""),
    reads,
    directByThreads: false,
  };
}
