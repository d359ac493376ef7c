import type { ShardColumns, TensorColumns } from "../native/addon.js";

/** What a plan needs of a checkpoint. `Checkpoint` is one; a test can make one up. */
export interface PlanSource {
  /** Where the checkpoint was opened. */
  readonly path: string;
  readonly shards: readonly PlanSourceShard[];
  /** @internal Sorted by (shard, offset). */
  readonly columns: TensorColumns;
  /** @internal */
  readonly shardColumns: ShardColumns;
  /** @internal */
  nameOf(row: number): string;
  /** @internal Row of a tensor, or -1. */
  rowOf(name: string): number;
}

export interface PlanSourceShard {
  /** Path of the file. */
  readonly file: string;
  readonly name: string;
}
