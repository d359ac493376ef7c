import { errorOf } from "../../errors.js";

/** `[file offset, bytes]` of one buffer. */
export type GdsRange = readonly [offset: number, bytes: number];

/** Where each buffer lies in the batch's one allocation. */
export interface RangePlacement {
  /** Offsets from the allocation's start, by range. */
  readonly at: Float64Array;
  /** Bytes of the allocation; 0 when no range has any. */
  readonly totalBytes: number;
}

/**
 * Buffers start at pages: cuFile reads straight into those, and anything else through a buffer of
 * its own.
 */
const alignmentBytes = 4096;

/**
 * Checks ranges against a file and places their buffers one after the other.
 * @throws ERR_OPTION_INVALID for what is no safe integer from 0 on; ERR_GDS_PAST_END
 */
export function placeRanges(ranges: readonly GdsRange[], fileBytes: number, file: string): RangePlacement {
  const isList: boolean = Array.isArray(ranges);
  if (!isList) throw invalid("ranges must be an array of [offset, bytes]", ranges);
  const at = new Float64Array(ranges.length);
  let end = 0;
  for (const [row, range] of ranges.entries()) {
    const shaped: boolean = Array.isArray(range) && range.length === 2;
    if (!shaped) throw invalid(`range ${row} must be [offset, bytes]`, range);
    const [offset, bytes] = range;
    for (const [name, value] of [
      ["offset", offset],
      ["size", bytes],
    ] as const) {
      if (!Number.isSafeInteger(value) || value < 0) throw invalid(`range ${row}: its ${name} must be an integer from 0 on`, value);
    }
    if (offset > fileBytes - bytes) {
      const message = `range ${row} ends beyond the file: ${bytes} bytes from offset ${offset} of ${file}, which has ${fileBytes}`;
      throw errorOf("ERR_GDS_PAST_END", message, { facts: { file, offset, length: bytes, fileBytes } });
    }
    const start = Math.ceil(end / alignmentBytes) * alignmentBytes;
    at[row] = bytes === 0 ? end : start;
    if (bytes > 0) end = start + bytes;
    if (!Number.isSafeInteger(end)) throw invalid("the sizes of all ranges together are no safe integer", end);
  }
  return { at, totalBytes: end };
}

function invalid(message: string, value: unknown): Error {
  return errorOf("ERR_OPTION_INVALID", `batchLoadFile: ${message}; it is ${String(value)}`, { facts: { option: "ranges", value } });
}
