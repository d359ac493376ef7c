import type { Hash } from "node:crypto";
import { entryOf } from "../columns.js";
import type { NativeArena } from "../native/addon.js";
import { awaitNative } from "../native/failure.js";
import { hugePageBytes } from "../units.js";

/** Bytes of one SHA-256. */
export const digestBytes = 32;
/**
 * Bytes that are copied to the host at a time, a huge page: hashed in a few milliseconds, so that
 * the event loop turns. Two are there at once.
 */
const copiedBytes = hugePageBytes;

/** What is copied in one piece: a part of one range, or several whole ranges near to each other. */
interface Piece {
  readonly address: bigint;
  readonly length: number;
  readonly parts: readonly { readonly row: number; readonly offset: number; readonly length: number; readonly last: boolean }[];
}

/**
 * SHA-256 of ranges of device memory, 32 bytes each in the order given, through copies to the host.
 */
export async function digestDevice(arena: NativeArena, addresses: BigUint64Array, lengths: Float64Array): Promise<Uint8Array> {
  const { createHash } = await import("node:crypto");
  const digests = new Uint8Array(addresses.length * digestBytes);
  const copy = ({ address, length }: Piece) =>
    length === 0 ? Promise.resolve(new Uint8Array(0)) : awaitNative(() => arena.copyToHost(address, length));
  let hash: Hash | undefined;
  let ahead: { readonly piece: Piece; readonly bytes: Promise<Uint8Array> } | undefined;
  const use = async ({ piece, bytes }: NonNullable<typeof ahead>) => {
    const content = await bytes;
    for (const { row, offset, length, last } of piece.parts) {
      hash ??= createHash("sha256");
      hash.update(content.subarray(offset, offset + length));
      if (!last) continue;
      digests.set(hash.digest(), row * digestBytes);
      hash = undefined;
    }
  };
  for (const piece of piecesOf(addresses, lengths)) {
    const bytes = copy(piece);
    bytes.catch(() => {}); // Looked at when its turn comes.
    const before = ahead;
    ahead = { piece, bytes };
    if (before !== undefined) await use(before);
  }
  if (ahead !== undefined) await use(ahead);
  return digests;
}

/** Pieces in the order of addresses, which cover every range. */
function* piecesOf(addresses: BigUint64Array, lengths: Float64Array): Generator<Piece> {
  const rows = [...addresses.keys()].sort((a, b) => (entryOf(addresses, a) < entryOf(addresses, b) ? -1 : 1));
  for (let at = 0; at < rows.length; ) {
    const begin = entryOf(addresses, entryOf(rows, at));
    const parts: Piece["parts"][number][] = [];
    let end = 0;
    for (; at < rows.length; at++) {
      const row = entryOf(rows, at);
      const [offset, length] = [Number(entryOf(addresses, row) - begin), entryOf(lengths, row)];
      if (offset + length > copiedBytes) break;
      parts.push({ row, offset, length, last: true });
      end = Math.max(end, offset + length);
    }
    if (parts.length > 0) {
      yield { address: begin, length: end, parts };
      continue;
    }
    const row = entryOf(rows, at++);
    const length = entryOf(lengths, row);
    for (let done = 0; done < length; done += copiedBytes) {
      const part = Math.min(copiedBytes, length - done);
      yield { address: begin + BigInt(done), length: part, parts: [{ row, offset: 0, length: part, last: done + part === length }] };
    }
  }
}
