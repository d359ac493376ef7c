import { entryOf } from "../columns.js";
import { hugePageBytes, roundDown, roundUp } from "../units.js";

/** Neighbouring tensors of a plan that are read together. */
export interface StreamWindow {
  /** Positions among the selected tensors, half-open. */
  readonly begin: number;
  readonly end: number;
  /** Bytes of its tensors. */
  readonly bytes: number;
  /**
   * Where the slot begins in the plan's address space: a multiple of `hugePageBytes`, so that every
   * tensor keeps its alignment in a slot.
   */
  readonly addressOffset: number;
  readonly slotBytes: number;
}

/**
 * Cuts the selected tensors, in their order, into windows of at most `maxBytes` of tensors; a
 * larger tensor has a window of its own.
 */
export function cutWindows(addressOffset: Float64Array, lengths: Float64Array, maxBytes: number): StreamWindow[] {
  const windows: StreamWindow[] = [];
  let begin = 0;
  let bytes = 0;
  const close = (end: number) => {
    if (end === begin) return;
    let first = Number.POSITIVE_INFINITY;
    let last = 0;
    for (let at = begin; at < end; at++) {
      const address = entryOf(addressOffset, at);
      first = Math.min(first, address);
      last = Math.max(last, address + entryOf(lengths, at));
    }
    const slotBegin = roundDown(first, hugePageBytes);
    const slotBytes = Math.max(hugePageBytes, roundUp(last - slotBegin, hugePageBytes));
    windows.push({ begin, end, bytes, addressOffset: slotBegin, slotBytes });
    begin = end;
    bytes = 0;
  };
  for (let at = 0; at < lengths.length; at++) {
    const length = entryOf(lengths, at);
    if (bytes > 0 && bytes + length > maxBytes) close(at);
    bytes += length;
  }
  close(lengths.length);
  return windows;
}
