import { requireNotAborted } from "../aborts.js";
import type { VmmArena } from "../arena/arena.js";
import { memoryKindOf } from "../arena/device-name.js";
import { requireInteger } from "../arguments.js";
import type { Checkpoint } from "../checkpoint/checkpoint.js";
import { entryOf } from "../columns.js";
import { errorOf } from "../errors.js";
import { addon } from "../native/load.js";
import type { MemoryClaim } from "../plan/claims.js";
import { type LoadPlan, planColumns } from "../plan/load-plan.js";
import { type PlanMemory, planMemory } from "../plan/memory.js";
import { addressColumn } from "../transfer/addresses.js";
import { allocateBefore } from "../transfer/allocate-before.js";
import type { Transfer } from "../transfer/driver.js";
import { timesOver } from "../transfer/driver-bytes.js";
import { driverOf } from "../transfer/drivers.js";
import { abandon, type Progress, progressIntervalMs, transferOutcome, within } from "../transfer/waiting.js";
import { formatBytes } from "../units.js";
import { batchOf } from "./batch.js";
import { LoadMemory } from "./load-memory.js";
import { claimMemory, makeRoom } from "./memory-check.js";
import { openBefore } from "./open-before.js";
import { type LoadOptions, type LoadSettings, resolveLoadOptions } from "./options.js";
import { openPlace } from "./place.js";
import { planInTurns } from "./plan-in-turns.js";
import { StreamMemory } from "./stream-memory.js";
import { Tensor, type TensorMemory } from "./tensor.js";
import { Uses } from "./uses.js";
import { cutWindows, type StreamWindow } from "./windows.js";

/** Options of {@link streamCheckpoint}. */
export interface StreamOptions extends LoadOptions {
  /**
   * Most bytes of tensors in memory at one time. With it a tensor's bytes live until the next step
   * of the iteration, without it until the loop has ended; then they are detached, once copies and
   * borrows that were begun have ended. What a loop moves out of a view, by a stream of bytes or
   * `ArrayBuffer.transfer()`, keeps its bytes, and is not counted.
   */
  readonly maxBytes?: number | undefined;
}

/**
 * Tensors read together where no bound asks for less; on a device more, where each window makes an
 * agent or pinned buffers of its own.
 */
const windowBytes = { host: 64 * 2 ** 20, device: 512 * 2 ** 20 };
/** Windows in flight or being handed out: one is read while the other is used. */
const slots = 2;

/**
 * Tensors as they become complete, in the order of shards and file offsets. Leaving the loop early
 * stops the reads, waits until none is in flight and gives the memory back, as its end does: to
 * keep tensors, load them.
 * @throws what `loadCheckpoint` throws, at the step that meets it; ERR_OPTION_INVALID where a
 *   tensor alone is larger than `maxBytes`; ERR_TRANSFER_STUCK where reads are in flight
 *   `closeTimeoutMs` after the loop was left
 */
export async function* streamCheckpoint(
  source: string | URL | Checkpoint,
  options: StreamOptions = {},
): AsyncGenerator<Tensor, void, undefined> {
  const started = performance.now();
  const settings = resolveLoadOptions(options, ["maxBytes"]);
  const { maxBytes } = options;
  if (maxBytes !== undefined) requireInteger("maxBytes", maxBytes, { min: 1 });
  if (settings.driver === "map") {
    throw errorOf("ERR_OPTION_CONFLICT", 'a stream reads windows into memory: the driver "map" has nothing to stream, use loadCheckpoint', {
      facts: { option: "driver" },
    });
  }
  const { signal, timeoutMs } = settings;
  requireNotAborted(signal);
  const deadline = timeoutMs > 0 ? started + timeoutMs : undefined;
  const limits = { signal, deadline, timeoutMs };
  const checkpoint = await openBefore(source, options, limits);
  const place = await openPlace(settings, limits);
  const { plan, layout, streamed, claim } = await planInTurns(checkpoint, place.plan, (made) => ({
    plan: made,
    ...layOut(checkpoint, made, maxBytes, settings),
  }));
  try {
    const { device, arena } = settings;
    await makeRoom({ device, checkpoint: plan.checkpoint, memory: streamed }, place.keeper);
    const allocateBytes = async (bytes: number) =>
      new LoadMemory(await allocateBefore(limits, { device, bytes, into: arena, backend: place.backend }), place.keeper);
    const memory = new StreamMemory(await allocateBytes(layout.bytes), layout.bounded ? layout : undefined, allocateBytes);
    const stream = new Stream(checkpoint, plan, settings, layout, memory, deadline);
    claim.follow(() => Math.max(memory.takenPageBytes, stream.arrivedBytes()));
    try {
      yield* stream.tensors();
      memory.filled();
    } catch (error) {
      throw await stream.abandon(error);
    } finally {
      await stream.close();
    }
  } finally {
    claim.release();
  }
}

interface WindowInFlight {
  readonly window: StreamWindow;
  readonly base: bigint;
  readonly arena: VmmArena;
  readonly transfer: Transfer;
}

/** How the tensors share the memory. */
interface StreamLayout {
  readonly bounded: boolean;
  readonly windows: readonly StreamWindow[];
  /** Bounded: the windows take turns in so many slots of so many bytes. */
  readonly slotCount: number;
  readonly slotBytes: number;
  readonly bytes: number;
}

/**
 * @throws ERR_OPTION_INVALID where a tensor alone is larger than `maxBytes`;
 *   ERR_MEMORY_WOULD_NOT_FIT
 */
function layOut(
  checkpoint: Checkpoint,
  plan: LoadPlan,
  maxBytes: number | undefined,
  settings: LoadSettings,
): { readonly layout: StreamLayout; readonly streamed: PlanMemory; readonly claim: MemoryClaim } {
  const { rows, addressOffset } = planColumns(plan);
  const lengths = Float64Array.from(rows, (row) => entryOf(checkpoint.columns.length, row));
  const largest = lengths.reduce((most, length) => Math.max(most, length), 0);
  if (maxBytes !== undefined && largest > maxBytes) {
    throw errorOf(
      "ERR_OPTION_INVALID",
      `maxBytes is ${formatBytes(maxBytes)}, and one tensor alone has ${formatBytes(largest)}: allow at least that`,
      {
        facts: { option: "maxBytes", largestTensorBytes: largest, maxBytes },
      },
    );
  }
  const bounded = maxBytes !== undefined;
  // Two windows share the bound; where one tensor needs more than half of it, windows are read one
  // after the other.
  const slotCount = maxBytes === undefined || largest <= maxBytes / slots ? slots : 1;
  const wanted = plan.device === "host" ? windowBytes.host : windowBytes.device;
  const windows = cutWindows(addressOffset, lengths, Math.min(wanted, (maxBytes ?? Number.POSITIVE_INFINITY) / slotCount));
  const slotBytes = windows.reduce((most, window) => Math.max(most, window.slotBytes), 0);
  const bytes = bounded ? Math.min(slotCount, windows.length) * slotBytes : plan.totals.allocationBytes;
  const layout = { bounded, windows, slotCount, slotBytes, bytes };
  const streamed = streamMemory(plan, layout, settings);
  const checked = { device: plan.device, checkpoint: plan.checkpoint, memory: streamed };
  return { layout, streamed, claim: claimMemory(checked, settings.memoryCheck) };
}

/** What a stream takes: its slots, and one batch for each window in flight. */
function streamMemory(
  plan: LoadPlan,
  { windows, slotCount, bytes }: StreamLayout,
  { driver, threads, maxChunkBytes }: LoadSettings,
): PlanMemory {
  const { device, memory, totals } = plan;
  const most = (of: (window: StreamWindow) => number) => windows.reduce((sum, window) => Math.max(sum, of(window)), 0);
  const batch = driverOf(driver, memoryKindOf(device)).takes({
    ...planColumns(plan).shape,
    bytes: most((window) => window.bytes),
    ranges: most((window) => window.end - window.begin),
    bouncedBytes: memory.slack.bounceBytes,
    threads,
  });
  const needs = {
    device,
    allocationBytes: bytes,
    mapped: false,
    pieces: totals.tensors,
    bytes: totals.bytes,
    maxChunkBytes,
    driver: timesOver(batch, Math.min(slotCount, windows.length)),
  };
  return planMemory(
    { ...needs, pageBytes: addon().pageBytes() },
    {
      device: { bytes: memory.availableBytes, limitedBy: memory.limitedBy },
      host: { bytes: memory.hostAvailableBytes, limitedBy: memory.hostLimitedBy },
    },
  );
}

/** One iteration: windows of neighbouring tensors, read one ahead of the one that is handed out. */
class Stream {
  readonly #checkpoint: Checkpoint;
  readonly #plan: LoadPlan;
  readonly #settings: LoadSettings;
  readonly #layout: StreamLayout;
  readonly #memory: StreamMemory;
  readonly #deadline: number | undefined;
  readonly #inFlight: WindowInFlight[] = [];
  /** Copies of tensors to the host that are in flight, and borrows. */
  readonly #uses = new Uses();
  #doneBytes = 0;
  #toldAt = Number.NEGATIVE_INFINITY;
  #over = false;

  constructor(
    checkpoint: Checkpoint,
    plan: LoadPlan,
    settings: LoadSettings,
    layout: StreamLayout,
    memory: StreamMemory,
    deadline: number | undefined,
  ) {
    this.#checkpoint = checkpoint;
    this.#plan = plan;
    this.#settings = settings;
    this.#layout = layout;
    this.#memory = memory;
    this.#deadline = deadline;
  }

  async *tensors(): AsyncGenerator<Tensor, void, undefined> {
    for (const [position, window] of this.#layout.windows.entries()) {
      while (this.#inFlight.length < this.#layout.slotCount && position + this.#inFlight.length < this.#layout.windows.length)
        this.#submit(position + this.#inFlight.length);
      const flight = this.#inFlight[0];
      if (flight === undefined) return;
      await this.#await(flight);
      const memory: TensorMemory = {
        arena: flight.arena,
        device: this.#settings.device,
        whileInUse: (work) => this.#uses.during(work),
        assertLive: (tensor) => this.#assertLive(tensor),
      };
      const { rows, addressOffset } = planColumns(this.#plan);
      for (let at = window.begin; at < window.end; at++) {
        const address = flight.base + BigInt(entryOf(addressOffset, at) - (this.#layout.bounded ? window.addressOffset : 0));
        const tensor = new Tensor(this.#checkpoint.tensorAt(entryOf(rows, at)), address, memory);
        requireNotAborted(this.#settings.signal);
        let left = true;
        try {
          yield tensor;
          left = false;
        } finally {
          if (this.#layout.bounded) await this.#takeBack(tensor, left);
        }
      }
      // Copies out of a slot end before it is filled anew.
      if (this.#layout.bounded) await this.#uses.ended();
      this.#inFlight.shift();
      if (this.#layout.bounded && position + this.#layout.slotCount < this.#layout.windows.length) await this.#memory.renew(position);
      this.#doneBytes += window.bytes;
    }
  }

  /** Bytes of the memory that are filled; a slot that is filled anew takes none. */
  arrivedBytes(): number {
    const bytes = this.#inFlight.reduce((sum, { transfer }) => sum + transfer.progressBytes(), this.#doneBytes);
    return Math.min(bytes, this.#layout.bytes);
  }

  /**
   * Ends a stream that failed: its error comes at once, reads that are stuck are waited for in the
   * background. Gives the error back.
   */
  abandon(error: unknown): Promise<unknown> {
    this.#over = true;
    return abandon(this.#transfers(), error, () => this.#release());
  }

  /** Stops what is in flight and waits for it, unless the stream failed. */
  async close(): Promise<void> {
    if (this.#over) return;
    this.#over = true;
    const { closeTimeoutMs } = this.#settings;
    const transfers = this.#transfers();
    for (const { abort, done } of transfers) {
      abort();
      done.catch(() => {});
    }
    const quiet = Promise.all(transfers.map(({ settled }) => settled)).then(() => this.#release());
    if (await within(quiet, closeTimeoutMs)) return;
    throw errorOf("ERR_TRANSFER_STUCK", `reads were still in flight ${closeTimeoutMs} ms after the stream was left`);
  }

  /**
   * Detaches a tensor's views once its borrows have ended. A loop that was left waits for them no
   * longer than closing may last.
   */
  async #takeBack(tensor: Tensor, left: boolean): Promise<void> {
    const { closeTimeoutMs } = this.#settings;
    if (!(await tensor.returned(left ? closeTimeoutMs : undefined))) {
      throw errorOf("ERR_TRANSFER_STUCK", `a borrow had not ended ${closeTimeoutMs} ms after the stream was left`);
    }
    tensor.release();
  }

  async #release(): Promise<void> {
    await this.#uses.ended();
    await this.#memory.release();
  }

  #assertLive(tensor: string): void {
    if (!this.#over) return;
    throw errorOf("ERR_TENSOR_RELEASED", `the bytes of tensor ${JSON.stringify(tensor)} lived until the stream's end`, {
      facts: { tensor },
    });
  }

  #transfers(): readonly Transfer[] {
    return this.#inFlight.map(({ transfer }) => transfer);
  }

  #submit(position: number): void {
    const window = this.#layout.windows[position];
    if (window === undefined) return;
    const { rows, addressOffset } = planColumns(this.#plan);
    const { columns } = this.#checkpoint;
    const selected = rows.subarray(window.begin, window.end);
    const { arena, base } = this.#memory.at(position);
    const shift = this.#layout.bounded ? window.addressOffset : 0;
    const pieces = {
      file: Uint32Array.from(selected, (row) => entryOf(columns.shard, row)),
      offset: Float64Array.from(selected, (row) => entryOf(columns.offset, row)),
      length: Float64Array.from(selected, (row) => entryOf(columns.length, row)),
      address: addressColumn(
        base,
        Float64Array.from(addressOffset.subarray(window.begin, window.end), (offset) => offset - shift),
      ),
    };
    const driver = driverOf(this.#settings.driver, memoryKindOf(this.#settings.device));
    const transfer = driver.submit({ arena, ...batchOf(this.#checkpoint, pieces, this.#settings) });
    transfer.done.catch(() => {}); // Looked at when its turn comes.
    this.#inFlight.push({ window, base, arena, transfer });
  }

  async #await({ transfer, window }: WindowInFlight): Promise<void> {
    const { signal, timeoutMs, onProgress } = this.#settings;
    const before = this.#doneBytes;
    const tell = onProgress && ((progress: Progress) => this.#tell(onProgress, before + progress.bytes));
    await transferOutcome(transfer, { signal, deadline: this.#deadline, timeoutMs, totalBytes: window.bytes, onProgress: tell });
  }

  /** Windows can end more often than the program wants to hear of. */
  #tell(onProgress: (progress: Progress) => void, bytes: number): void {
    const totalBytes = this.#plan.totals.bytes;
    const now = performance.now();
    if (bytes < totalBytes && now - this.#toldAt < progressIntervalMs) return;
    this.#toldAt = now;
    onProgress({ bytes, totalBytes });
  }
}
