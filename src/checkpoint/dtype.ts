/**
 * The 22 dtypes of the format, in the order that the reference writer sorts by; the native dtype
 * column holds row numbers of this table.
 */
export const dtypeTable = [
  ["BOOL", 8, 1],
  ["F4", 4, 1],
  ["F6_E2M3", 6, 1],
  ["F6_E3M2", 6, 1],
  ["U8", 8, 1],
  ["I8", 8, 1],
  ["F8_E5M2", 8, 1],
  ["F8_E4M3", 8, 1],
  ["F8_E8M0", 8, 1],
  ["F8_E4M3FNUZ", 8, 1],
  ["F8_E5M2FNUZ", 8, 1],
  ["I16", 16, 2],
  ["U16", 16, 2],
  ["F16", 16, 2],
  ["BF16", 16, 2],
  ["I32", 32, 4],
  ["U32", 32, 4],
  ["F32", 32, 4],
  ["C64", 64, 4],
  ["F64", 64, 8],
  ["I64", 64, 8],
  ["U64", 64, 8],
] as const;

/** Name of a dtype, exactly as in a header. */
export type Dtype = (typeof dtypeTable)[number][0];

export interface DtypeInfo {
  readonly name: Dtype;
  /** Bits of one element; 4 and 6 for the packed sub-byte dtypes. */
  readonly bits: number;
  /**
   * Alignment in bytes that a TypedArray of its parts needs (C64 is two 32-bit floats; sub-byte
   * dtypes are handed out as bytes).
   */
  readonly alignBytes: number;
}

export const dtypes: readonly DtypeInfo[] = dtypeTable.map(([name, bits, alignBytes]) => Object.freeze({ name, bits, alignBytes }));
