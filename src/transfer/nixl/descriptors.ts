import { entryOf } from "../../columns.js";
import type { SegmentKind } from "../../native/addon.js";

export type { SegmentKind };

/**
 * Pieces of one kind on one device, as parallel columns. For a FILE the addresses are file offsets
 * and the device is the descriptor.
 */
export interface Pieces {
  readonly kind: SegmentKind;
  readonly device: number;
  readonly address: BigUint64Array;
  /** Bytes. */
  readonly length: Float64Array;
}

/**
 * The regions of `[address, bytes, ...]`, ascending; those side by side become one where `joined`.
 */
export function regionsOf(ranges: BigUint64Array, joined: boolean): { readonly address: BigUint64Array; readonly length: Float64Array } {
  const address: bigint[] = [];
  const length: number[] = [];
  let end: bigint | undefined;
  for (let at = 0; at < ranges.length; at += 2) {
    const [begin, bytes] = [entryOf(ranges, at), entryOf(ranges, at + 1)];
    if (joined && begin === end) {
      length[length.length - 1] = entryOf(length, length.length - 1) + Number(bytes);
    } else {
      address.push(begin);
      length.push(Number(bytes));
    }
    end = begin + bytes;
  }
  return { address: BigUint64Array.from(address), length: Float64Array.from(length) };
}

/** Bytes of all pieces. */
export function pieceBytes(pieces: Pieces): number {
  let bytes = 0;
  for (const length of pieces.length) bytes += length;
  return bytes;
}
