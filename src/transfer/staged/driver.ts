import { VmmArena } from "../../arena/arena.js";
import { hostBackend } from "../../arena/host-backend.js";
import type { NativeStaging, TransferFiles, TransferPieces } from "../../native/addon.js";
import { callNative, fromNative } from "../../native/failure.js";
import { addon } from "../../native/load.js";
import { hugePageBytes, roundUp } from "../../units.js";
import { addressBounds } from "../addresses.js";
import { ConductedBatch } from "../conducted-batch.js";
import { type Deferred, deferred } from "../deferred.js";
import type { BatchSummary, ForecastBatch, ForecastWay, TransferBatch, TransferDriver } from "../driver.js";
import { bytesOfThread, type DriverBytes, type ReadShape } from "../driver-bytes.js";
import { autoDriver, lanesTake } from "../reading-driver.js";
import { keepingAlive } from "../settled.js";
import { filesOf, SummarySum } from "./summary.js";
import { type StagingWindow, stagingWindows } from "./windows.js";

/**
 * A batch gets as many slots as let reads and copies overlap; each is long enough to keep storage
 * and the bus busy.
 */
const maxSlots = 4;
const maxSlotBytes = 64 * 2 ** 20;
const minSlotBytes = 4 * 2 ** 20;

/**
 * Files into the memory of a CUDA device without GPUDirect Storage: window by window into pinned
 * host memory, as `auto` reads there, and from there by copies of the device's own engine, while
 * the next windows are read.
 */
export const stagedDriver: TransferDriver = {
  name: "staged",
  capabilities: { memory: ["device"], copies: true, registrable: true },
  takes: stagingTakes,
  forecast: stagedForecast,
  submit: (batch) => new StagedBatch(batch),
};

/** How a batch of so many bytes is cut. */
function slotsFor(copiedBytes: number): { readonly slotBytes: number; readonly slots: number } {
  const size = roundUp(Math.ceil(copiedBytes / maxSlots), hugePageBytes);
  const slotBytes = Math.min(maxSlotBytes, Math.max(minSlotBytes, size));
  return { slotBytes, slots: Math.min(maxSlots, Math.ceil(copiedBytes / slotBytes)) };
}

/** Reads into each slot on so many threads: some of the slots are being copied from. */
function threadsOfSlot(threads: number, slots: number): number {
  return Math.ceil((2 * threads) / (slots + 1));
}

/**
 * All slots being read at once, by lanes of their own; their windows are congruent to the files, so
 * nothing bounces.
 */
function stagingTakes(shape: ReadShape): DriverBytes {
  const { slotBytes, slots } = slotsFor(shape.bytes);
  const bytes = Math.min(shape.bytes, slotBytes);
  const slot = lanesTake({ ...shape, bytes, bouncedBytes: 0, threads: threadsOfSlot(shape.threads, slots) }, true);
  return {
    ...slot,
    threadBytes: slots * slot.threadBytes + bytesOfThread,
    ringBytes: slots * slot.ringBytes,
    pinnedBytes: slots * slotBytes,
  };
}

/** Each window is read as `auto` reads to the host. */
function stagedForecast(batch: ForecastBatch): readonly ForecastWay[] {
  const { slotBytes } = slotsFor(batch.pieces.length.reduce((sum, length) => sum + length, 0));
  const ways = new Map<string, ForecastWay>();
  let windows = 0;
  for (const { reads } of stagingWindows(batch.files, batch.pieces, slotBytes)) {
    windows++;
    const { files, pieces } = readsOf(batch.files, reads, 0n);
    for (const way of autoDriver.forecast({ ...batch, files, pieces })) {
      ways.set(way.of, { ...way, reads: way.reads + (ways.get(way.of)?.reads ?? 0) });
    }
  }
  return Array.from(ways.values(), (way) => ({ ...way, path: "staged", of: `${way.of} (${way.path})`, windows }));
}

/**
 * What a window reads into a slot at `address`, with its own files alone; `rows` are their numbers
 * in the batch.
 */
function readsOf(files: TransferFiles, { file, offset, length, slotOffset }: StagingWindow["reads"], address: bigint) {
  const rows = [...new Set(file)];
  const rowOf = new Map(rows.map((row, number) => [row, number]));
  const pieces: TransferPieces = {
    file: file.map((row) => rowOf.get(row) as number),
    offset,
    length,
    address: BigUint64Array.from(slotOffset, (at) => address + BigInt(at)),
  };
  return { rows, files: filesOf(files, rows), pieces };
}

interface Staging {
  readonly memory: VmmArena;
  /** Of the first slot. */
  readonly address: bigint;
  readonly slotBytes: number;
  readonly native: NativeStaging;
  /** By slot: resolved when it may be filled, or filled again. */
  readonly free: Deferred<void>[];
  /** What could not be given back. */
  readonly ended: Deferred<unknown[]>;
}

class StagedBatch extends ConductedBatch<BatchSummary> {
  readonly #batch: TransferBatch;
  readonly #sum: SummarySum;
  #copiedBytes = 0;

  constructor(batch: TransferBatch) {
    super();
    this.#batch = batch;
    this.#sum = new SummarySum(batch.files.paths.length);
    const staging = openStaging(batch);
    // Nothing native keeps the process alive: a copy that is stuck must not.
    keepingAlive(this.done).catch(() => {});
    this.conduct(this.#run(staging));
  }

  progressBytes(): number {
    return this.#copiedBytes;
  }

  async #run(staging: Staging | undefined): Promise<BatchSummary> {
    if (staging !== undefined) {
      const windows = stagingWindows(this.#batch.files, this.#batch.pieces, staging.slotBytes);
      await Promise.all(staging.free.map((_, slot) => this.#cycle(staging, slot, windows)));
      staging.native.close();
      const failures = await staging.ended.promise;
      for (const error of failures) this.failCleanUp(error);
      // Memory that the driver still has registered must stay; the rest of it goes when it is
      // unreachable.
      if (failures.length === 0) this.#close(staging.memory);
    }
    return this.#sum.build();
  }

  /**
   * Fills and empties one slot over and over. Returns when neither a read into it nor a copy from
   * it is in flight, save copies after a failure.
   */
  async #cycle(staging: Staging, slot: number, windows: Iterator<StagingWindow, void>): Promise<void> {
    try {
      await staging.free[slot]?.promise;
      while (!this.failed) {
        const { value: window } = windows.next();
        if (window === undefined) return;
        await this.#read(staging, slot, window);
        if (this.failed) return;
        const free = deferred<void>();
        staging.free[slot] = free;
        const { from, to, length } = window.copies;
        callNative(() => staging.native.copy(slot, from, to, length));
        await free.promise;
        this.#copiedBytes += window.bytes;
      }
    } catch (error) {
      this.fail(error);
    }
  }

  async #read({ memory, address, slotBytes, free }: Staging, slot: number, { reads }: StagingWindow): Promise<void> {
    const { files, threads, maxChunkBytes } = this.#batch;
    const { rows, ...batch } = readsOf(files, reads, address + BigInt(slot * slotBytes));
    const reading = this.follow(
      autoDriver.submit({ arena: memory, ...batch, threads: threadsOfSlot(threads, free.length), maxChunkBytes }),
    );
    try {
      this.#sum.add(rows, await reading.done);
    } catch (error) {
      this.fail(error);
    }
    await reading.settled;
    this.forget(reading);
  }

  #close(memory: VmmArena): void {
    try {
      memory.close();
    } catch (error) {
      this.failCleanUp(error);
    }
  }
}

/**
 * Slots for a batch, being made ready one after another; undefined for one without bytes, which
 * needs no memory and no device.
 */
function openStaging({ arena, pieces }: TransferBatch): Staging | undefined {
  const target = addressBounds(pieces.address, pieces.length);
  if (target === undefined) return undefined;
  const copiedBytes = pieces.length.reduce((sum, length) => sum + length, 0);
  const { slotBytes, slots } = slotsFor(copiedBytes);
  const free = Array.from({ length: slots }, () => deferred<void>());
  const ended = deferred<unknown[]>();
  const memory = new VmmArena({ backend: hostBackend(), totalBytes: slots * slotBytes });
  try {
    const address = memory.malloc(slots * slotBytes);
    const report = (slot: number, failure: string | null) => {
      if (failure === null) free[slot]?.resolve();
      else free[slot]?.reject(fromNative(failure));
    };
    const native = callNative(() =>
      addon().openStaging(
        memory.native,
        { address, slotBytes, slots },
        arena.native,
        target.begin,
        Number(target.end - target.begin),
        report,
        (failures) => ended.resolve(failures.map(fromNative)),
      ),
    );
    return { memory, address, slotBytes, native, free, ended };
  } catch (error) {
    // The failure that led here goes up; one of the close is published as an event.
    try {
      memory.close();
    } catch {}
    throw error;
  }
}
