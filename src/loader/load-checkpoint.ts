import { setImmediate } from "node:timers/promises";
import { requireNotAborted } from "../aborts.js";
import { memoryKindOf } from "../arena/device-name.js";
import type { Checkpoint } from "../checkpoint/checkpoint.js";
import { publish } from "../events.js";
import type { MemoryClaim } from "../plan/claims.js";
import type { LoadPlan } from "../plan/load-plan.js";
import { allocateBefore } from "../transfer/allocate-before.js";
import type { BatchSummary, Transfer } from "../transfer/driver.js";
import { driverOf } from "../transfer/drivers.js";
import type { Limits } from "../transfer/limits.js";
import { abandon, awaitTransfer } from "../transfer/waiting.js";
import { batchOf, piecesOf } from "./batch.js";
import { LoadMemory } from "./load-memory.js";
import { LoadedModel } from "./loaded-model.js";
import { claimMemory, makeRoom } from "./memory-check.js";
import { openBefore } from "./open-before.js";
import { type LoadOptions, type LoadSettings, resolveLoadOptions } from "./options.js";
import { openPlace, type Place } from "./place.js";
import { planInTurns } from "./plan-in-turns.js";
import { identityNotKept, makeReport } from "./report.js";

/**
 * Brings the tensors of a checkpoint into one allocation of an arena, in the memory of the host or
 * of a CUDA device. Every byte is in place when it resolves.
 *
 * An aborted, late or failed load rejects at once; the error's `settled` resolves when nothing is
 * in flight any more and the memory is given back.
 * @param source path or `file:` URL of a safetensors file, an index or a folder, or a checkpoint
 *   opened before
 * @throws what `openCheckpoint` and `planLoad` throw; ERR_MEMORY_WOULD_NOT_FIT;
 *   ERR_ARENA_RESERVE_REFUSED, ERR_ARENA_OUT_OF_MEMORY, ERR_ARENA_EXHAUSTED; ERR_TRANSFER_READ,
 *   ERR_TRANSFER_UNEXPECTED_END, ERR_TRANSFER_FILE_CHANGED, ERR_TRANSFER_TIMEOUT; with `io_uring`
 *   asked for by name ERR_TRANSFER_IO_URING_REFUSED and ERR_TRANSFER_DIRECT_REFUSED; with `nixl`
 *   ERR_NIXL_NOT_FOUND, ERR_NIXL_PLUGIN, ERR_NIXL_REGISTER, ERR_NIXL_TRANSFER; to a device
 *   ERR_CUDA_LIBRARY, ERR_CUDA_DEVICE, ERR_CUDA_OUT_OF_MEMORY, ...; ERR_ABORTED
 */
export async function loadCheckpoint(source: string | URL | Checkpoint, options: LoadOptions = {}): Promise<LoadedModel> {
  const started = performance.now();
  const settings = resolveLoadOptions(options);
  const { signal, timeoutMs } = settings;
  requireNotAborted(signal);
  const deadline = timeoutMs > 0 ? started + timeoutMs : undefined;

  const limits = { signal, deadline, timeoutMs };
  const checkpoint = await openBefore(source, options, limits);
  const opened = performance.now();
  await turn(checkpoint);
  const place = await openPlace(settings, limits);
  const { plan, claim } = await planInTurns(checkpoint, place.plan, (made) => ({
    plan: made,
    claim: claimMemory(made, settings.memoryCheck),
  }));
  try {
    await turn(checkpoint);
    await makeRoom(plan, place.keeper);
    requireNotAborted(signal);
    const planned = performance.now();
    const filled = await fill(checkpoint, plan, settings, { ...limits, place, claim });
    return modelOf(checkpoint, plan, settings, filled, { started, opened, planned });
  } finally {
    claim.release();
  }
}

/** Memory with every byte in place. */
interface Filled {
  readonly memory: LoadMemory;
  readonly summary: BatchSummary;
  /** Points of `performance.now()`. */
  readonly allocated: number;
  readonly transferred: number;
}

interface FillOptions extends Limits {
  readonly place: Place;
  readonly claim: MemoryClaim;
}

async function fill(checkpoint: Checkpoint, plan: LoadPlan, settings: LoadSettings, options: FillOptions): Promise<Filled> {
  const { claim, place, ...limits } = options;
  const request = { device: settings.device, bytes: plan.totals.allocationBytes, into: settings.arena, backend: place.backend };
  const memory = new LoadMemory(await allocateBefore(limits, request), place.keeper);
  const { arena, base } = memory;
  const allocated = performance.now();
  let transfer: Transfer;
  try {
    const driver = driverOf(settings.driver, memoryKindOf(settings.device));
    transfer = driver.submit({ arena, ...batchOf(checkpoint, piecesOf(plan, base), settings) });
  } catch (error) {
    throw await abandon([], error, () => memory.release());
  }
  claim.follow(() => Math.max(memory.takenPageBytes, transfer.progressBytes()));
  const waiting = { ...limits, totalBytes: plan.totals.bytes, onProgress: settings.onProgress };
  const summary = await awaitTransfer(transfer, waiting, () => memory.release());
  memory.filled();
  const transferred = performance.now();
  await turn(checkpoint);
  return { memory, summary, allocated, transferred };
}

interface Beginnings {
  readonly started: number;
  readonly opened: number;
  readonly planned: number;
}

function modelOf(
  checkpoint: Checkpoint,
  plan: LoadPlan,
  settings: LoadSettings,
  { memory, summary, allocated, transferred }: Filled,
  { started, opened, planned }: Beginnings,
): LoadedModel {
  const { arena, base } = memory;
  const { allocationBytes } = plan.totals;
  for (const [row, reason] of summary.fallback.entries()) {
    if (reason !== "") publish({ event: "load.fallback", file: checkpoint.shards[row]?.file, driver: settings.driver, reason });
  }
  for (const [row, bits] of summary.unkept.entries()) {
    if (bits !== 0) publish({ event: "load.identity-not-kept", file: checkpoint.shards[row]?.file, what: identityNotKept(bits) });
  }
  const report = makeReport({
    checkpoint,
    plan,
    driver: settings.driver,
    threads: settings.threads,
    memoryCheck: settings.memoryCheck,
    reusedBytes: memory.takenPageBytes,
    summary,
    hugePageBytes: arena.memory !== "host" ? null : allocationBytes === 0 ? 0 : arena.native.hugePageBytes(base, allocationBytes),
    times: {
      openMs: opened - started,
      planMs: planned - opened,
      allocateMs: allocated - planned,
      transferMs: transferred - allocated,
      totalMs: transferred - started,
    },
  });
  const { threads, closeTimeoutMs } = settings;
  return new LoadedModel({ checkpoint, plan, report, memory, threads, closeTimeoutMs });
}

/**
 * For checkpoints of more tensors than this every phase of the load has a turn of the event loop of
 * its own.
 */
const manyTensors = 10_000;

/**
 * Lets the event loop turn between two phases that are long for a checkpoint of very many tensors,
 * so that they do not add up.
 */
async function turn(checkpoint: Checkpoint): Promise<void> {
  if (checkpoint.tensorCount > manyTensors) await setImmediate();
}
