import { constants } from "node:buffer";
import { entryOf } from "../columns.js";
import type { NativeHeaders, TensorColumns } from "../native/addon.js";

/**
 * Names of tensors by row and back. Text is decoded when the first name is asked for; the lookup by
 * name is the addon's.
 */
export class TensorNames {
  readonly #headers: NativeHeaders;
  readonly #bytes: Buffer;
  readonly #ends: Float64Array;
  readonly #sliceable: boolean;
  #text: string | undefined;

  constructor(headers: NativeHeaders, columns: TensorColumns) {
    const { buffer, byteOffset, byteLength } = columns.nameBytes;
    this.#headers = headers;
    this.#bytes = Buffer.from(buffer as ArrayBuffer, byteOffset, byteLength);
    this.#ends = columns.nameEnd;
    this.#sliceable = columns.namesAscii && byteLength <= constants.MAX_STRING_LENGTH;
  }

  nameOf(row: number): string {
    const end = this.#ends[row];
    if (end === undefined) throw new RangeError(`row ${row} is not one of ${this.#ends.length}`);
    const begin = row === 0 ? 0 : entryOf(this.#ends, row - 1);
    if (!this.#sliceable) return this.#bytes.toString("utf8", begin, end);
    this.#text ??= this.#bytes.toString("latin1");
    return this.#text.slice(begin, end);
  }

  rowOf(name: string): number {
    if (typeof name !== "string") return -1;
    const row = this.#headers.find(name);
    // A lone surrogate reaches the addon as U+FFFD, and would find a name that has just that.
    return row !== null && this.nameOf(row) === name ? row : -1;
  }
}
