import type { Checkpoint } from "../checkpoint/checkpoint.js";
import { type LoadPlan, planColumns } from "../plan/load-plan.js";
import { addressColumn } from "../transfer/addresses.js";
import type { TransferBatch } from "../transfer/driver.js";
import { transferFiles } from "../transfer/files.js";
import type { LoadSettings } from "./options.js";

/** A plan's pieces and a load's limits as a driver takes them; addresses count from `base`. */
export function batchOf(checkpoint: Checkpoint, plan: LoadPlan, settings: LoadSettings, base = 0n): Omit<TransferBatch, "arena"> {
  const { shard: file, offset, length, addressOffset } = planColumns(plan).pieces;
  const { threads, maxChunkBytes, plugin, gds } = settings;
  return {
    files: transferFiles(checkpoint.shards, checkpoint.shardColumns),
    pieces: { file, offset, length, address: addressColumn(base, addressOffset) },
    threads,
    maxChunkBytes,
    plugin,
    gds,
  };
}
