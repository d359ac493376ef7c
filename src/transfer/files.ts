import type { ShardColumns, TransferFiles } from "../native/addon.js";

/** The files of a checkpoint as a transfer takes them: all of them, so that a shard's number is its row. */
export function transferFiles(shards: readonly { readonly file: string }[], columns: ShardColumns): TransferFiles {
  return {
    paths: shards.map((shard) => shard.file),
    size: columns.size,
    dev: columns.dev,
    ino: columns.ino,
    mtimeNs: columns.mtimeNs,
    dioOffsetAlign: columns.dioOffsetAlign,
    dioMemAlign: columns.dioMemAlign,
  };
}
