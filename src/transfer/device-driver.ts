import { entryOf } from "../columns.js";
import { errorOf, ModelExpressError } from "../errors.js";
import type { TransferPieces, TransferSummary } from "../native/addon.js";
import { readText } from "../probe/read-text.js";
import { ConductedBatch } from "./conducted-batch.js";
import type { BatchSummary, ReadPath, Transfer, TransferBatch, TransferDriver } from "./driver.js";
import { largerOf } from "./driver-bytes.js";
import { whyGdsUnavailable } from "./gds/available.js";
import { nixlDriver, submitNixl } from "./nixl/driver.js";
import { stagedDriver } from "./staged/driver.js";

/**
 * Failures that say that NIXL or its plugin cannot be used here at all; they come before anything
 * is read.
 */
const unusable: readonly string[] = [
  "ERR_NIXL_NOT_FOUND",
  "ERR_NIXL_LOAD",
  "ERR_NIXL_SYMBOLS",
  "ERR_NIXL_STUB",
  "ERR_NIXL_AGENT",
  "ERR_NIXL_PLUGIN",
];

/**
 * What `auto` is for the memory of a device: GPUDirect Storage by NIXL's plugin GDS_MT where the
 * machine has what it needs, and for the files that it can register; pinned buffers for all others.
 * The summary says why for each file.
 */
export const deviceDriver: TransferDriver = {
  name: "auto",
  capabilities: { memory: ["device"], copies: true, registrable: true },
  takes: (shape) => largerOf(nixlDriver.takes(shape), stagedDriver.takes(shape)),
  forecast: (batch) => [
    ...nixlDriver
      .forecast({ ...batch, plugin: "GDS_MT" })
      .map((way) => ({ ...way, of: `${way.of}, of files that GPUDirect Storage can read` })),
    ...stagedDriver.forecast(batch).map((way) => ({ ...way, of: `of all other files ${way.of}` })),
  ],
  submit: (batch) => new DeviceBatch(batch),
};

class DeviceBatch extends ConductedBatch<BatchSummary> {
  readonly #batch: TransferBatch;
  /** The part that is running. */
  #part: Transfer | undefined;
  /** Bytes of the parts that are over. */
  #doneBytes = 0;

  constructor(batch: TransferBatch) {
    super();
    this.#batch = batch;
    this.conduct(this.#run());
  }

  progressBytes(): number {
    return this.#doneBytes + (this.#part?.progressBytes() ?? 0);
  }

  async #run(): Promise<BatchSummary> {
    const { files, pieces } = this.#batch;
    /** Why a file is not read by GPUDirect Storage. */
    const reasons = new Map<number, string>();
    const why = pieces.length.length === 0 ? undefined : await whyGdsUnavailable({}, readText);
    const direct = why ?? (await this.#direct(reasons));
    if (typeof direct === "string") for (let file = 0; file < files.paths.length; file++) reasons.set(file, direct);
    const rest = typeof direct === "string" ? pieces : piecesOf(pieces, reasons);
    const begin = () => stagedDriver.submit({ ...this.#batch, pieces: rest });
    const staged = rest.length.length === 0 ? undefined : await this.#wait(begin);
    return joined(this.#batch, typeof direct === "string" ? undefined : direct, staged, reasons);
  }

  /**
   * Reads the files that can be registered, and notes why the others cannot. A text when none can
   * be read so.
   */
  async #direct(reasons: Map<number, string>): Promise<BatchSummary | string> {
    const onRefused = (file: number, error: ModelExpressError) => reasons.set(file, error.message);
    try {
      return await this.#wait(() => submitNixl({ ...this.#batch, plugin: "GDS_MT" }, onRefused));
    } catch (error) {
      if (isUnusable(error)) return error.message;
      throw error;
    }
  }

  /** Waits for a part, also for its end after a failure, of which `done` tells at once. */
  async #wait(begin: () => Transfer): Promise<BatchSummary> {
    if (this.failed) throw errorOf("ERR_TRANSFER_ABORTED", "the reads were stopped");
    const part = this.follow(begin());
    this.#part = part;
    try {
      return await part.done;
    } catch (error) {
      if (!isUnusable(error)) this.fail(error);
      throw error;
    } finally {
      await part.settled;
      this.forget(part);
      this.#doneBytes += part.progressBytes();
      this.#part = undefined;
    }
  }
}

function isUnusable(error: unknown): error is ModelExpressError {
  return error instanceof ModelExpressError && unusable.includes(error.code);
}

/** The pieces of these files. */
function piecesOf(pieces: TransferPieces, files: ReadonlyMap<number, unknown>): TransferPieces {
  const rows = [...pieces.file.keys()].filter((row) => files.has(entryOf(pieces.file, row)));
  return {
    file: Uint32Array.from(rows, (row) => entryOf(pieces.file, row)),
    offset: Float64Array.from(rows, (row) => entryOf(pieces.offset, row)),
    length: Float64Array.from(rows, (row) => entryOf(pieces.length, row)),
    address: BigUint64Array.from(rows, (row) => entryOf(pieces.address, row)),
  };
}

/** One summary of both parts: each file was read by one of them. */
function joined(
  { files }: TransferBatch,
  direct: BatchSummary | undefined,
  staged: TransferSummary | undefined,
  reasons: ReadonlyMap<number, string>,
): BatchSummary {
  const partOf = (file: number) => (reasons.has(file) ? staged : direct);
  const column = (of: (part: TransferSummary) => ArrayLike<number>, missing: number) =>
    Float64Array.from(files.paths, (_, file) => {
      const part = partOf(file);
      return part === undefined ? missing : entryOf(of(part), file);
    });
  const [bufferedBytes, directBytes] = [column((part) => part.bufferedBytes, 0), column((part) => part.directBytes, 0)];
  const wayOf = (file: number): ReadPath | undefined => {
    if (entryOf(bufferedBytes, file) + entryOf(directBytes, file) === 0) return undefined;
    return reasons.has(file) ? "staged" : "nixl";
  };
  return {
    bufferedBytes,
    cachedBytes: files.paths.map((_, file) => {
      const part = partOf(file);
      return part === undefined ? null : entryOf(part.cachedBytes, file);
    }),
    directBytes,
    fallback: files.paths.map((_, file) => oneLine([reasons.get(file), partOf(file)?.fallback[file]])),
    reads: (direct?.reads ?? 0) + (staged?.reads ?? 0),
    unkept: Uint8Array.from(column((part) => part.unkept, 0)),
    directByThreads: Uint8Array.from(column((part) => part.directByThreads, 0)),
    ways: files.paths.map((_, file) => wayOf(file)),
    ...(direct?.nixl === undefined || direct.nixl.windows === 0 ? {} : { nixl: direct.nixl }),
  };
}

/** Reasons as one line; messages of errors can have several. */
function oneLine(reasons: readonly (string | undefined)[]): string {
  return reasons
    .filter(Boolean)
    .join("; ")
    .replaceAll(/\s*\n\s*/g, " ");
}
