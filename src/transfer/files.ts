import type { ShardColumns, TransferFiles } from "../native/addon.js";

/** The files of a checkpoint as a transfer takes them: all of them, so that a shard's number is its row. */
export function transferFiles(shards: readonly { readonly file: string }[], columns: ShardColumns): TransferFiles {
  return {
    paths: shards.map((shard) => shard.file),
    size: columns.size,
    identity: columns.identity,
    dioOffsetAlign: columns.dioOffsetAlign,
    dioMemAlign: columns.dioMemAlign,
  };
}

/** Entries of `identity` for each file. */
const identityWords = 6;

/** The identities of these rows. */
export function identityOf({ identity }: TransferFiles, rows: readonly number[]): BigUint64Array {
  const chosen = new BigUint64Array(rows.length * identityWords);
  for (const [at, row] of rows.entries()) {
    chosen.set(identity.subarray(row * identityWords, (row + 1) * identityWords), at * identityWords);
  }
  return chosen;
}
