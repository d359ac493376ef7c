import type { Checkpoint } from "../checkpoint/checkpoint.js";
import type { TransferPieces } from "../native/addon.js";
import { type LoadPlan, planColumns } from "../plan/load-plan.js";
import { addressColumn } from "../transfer/addresses.js";
import type { TransferBatch } from "../transfer/driver.js";
import { transferFiles } from "../transfer/files.js";
import type { LoadSettings } from "./options.js";

/** Pieces of a checkpoint's shards and a load's limits as a driver takes them. */
export function batchOf(
  { shards, shardColumns }: Checkpoint,
  pieces: TransferPieces,
  { threads, maxChunkBytes, plugin, gds }: LoadSettings,
): Omit<TransferBatch, "arena"> {
  return { files: transferFiles(shards, shardColumns), pieces, threads, maxChunkBytes, plugin, gds };
}

/** The pieces of a plan whose allocation begins at `base`. */
export function piecesOf(plan: LoadPlan, base: bigint): TransferPieces {
  const { shard: file, offset, length, addressOffset } = planColumns(plan).pieces;
  return { file, offset, length, address: addressColumn(base, addressOffset) };
}
