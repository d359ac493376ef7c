import { entryOf } from "../columns.js";
import type { ShardColumns, TransferFiles, TransferPieces } from "../native/addon.js";
import { addon } from "../native/load.js";

/**
 * The files of a checkpoint as a transfer takes them: all of them, so that a shard's number is its
 * row.
 */
export function transferFiles(shards: readonly { readonly file: string }[], columns: ShardColumns): TransferFiles {
  return {
    paths: shards.map((shard) => shard.file),
    size: columns.size,
    identity: columns.identity,
    dioOffsetAlign: columns.dioOffsetAlign,
    dioMemAlign: columns.dioMemAlign,
  };
}

/**
 * Blocks of each file, in bytes: a direct read goes from a multiple to a multiple, to an address
 * that is congruent.
 */
export function directBlocks({ dioOffsetAlign, dioMemAlign }: Pick<TransferFiles, "dioOffsetAlign" | "dioMemAlign">): Uint32Array {
  const { offset, memory } = addon().directAlign(dioOffsetAlign, dioMemAlign);
  return offset.map((bytes, file) => Math.max(bytes, entryOf(memory, file)));
}

/** The largest of these among the files that have a piece. */
export function largestBlock({ files, pieces }: { readonly files: TransferFiles; readonly pieces: TransferPieces }): number {
  const blocks = directBlocks(files);
  return pieces.file.reduce((most, file) => Math.max(most, entryOf(blocks, file)), 1);
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
