import { writeFileSync } from "node:fs";
import type { Dtype } from "../../src/checkpoint/dtype.js";
import { dtypes } from "../../src/checkpoint/dtype.js";

export interface TensorSpec {
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  /** Contents; made from the name when left out. */
  readonly bytes?: Uint8Array;
}

export interface SafetensorsOptions {
  readonly metadata?: Readonly<Record<string, string>>;
  /**
   * The data starts at a multiple of this many bytes. Default 8, as the reference writer does; 1
   * pads nothing.
   */
  readonly pad?: number;
}

/** Offset of the first byte after the header. */
export function dataStartOf(content: Buffer): number {
  return 8 + Number(content.readBigUInt64LE());
}

/** A safetensors file of these tensors, in the order given. */
export function buildSafetensors(tensors: Readonly<Record<string, TensorSpec>>, options: SafetensorsOptions = {}): Buffer {
  const header: Record<string, unknown> = Object.create(null);
  if (options.metadata !== undefined) header.__metadata__ = options.metadata;
  const data: Uint8Array[] = [];
  let begin = 0;
  for (const [name, { dtype, shape, bytes = pattern(name, byteLengthOf(dtype, shape)) }] of Object.entries(tensors)) {
    header[name] = { dtype, shape, data_offsets: [begin, begin + bytes.length] };
    data.push(bytes);
    begin += bytes.length;
  }
  return Buffer.concat([rawHeader(JSON.stringify(header), options.pad), ...data]);
}

/**
 * Length prefix and header text, as it is; the text is padded with spaces so that what follows
 * starts at a multiple of `pad`.
 */
export function rawHeader(text: string | Uint8Array, pad = 8): Buffer {
  const body = Buffer.from(text as string);
  const out = Buffer.alloc(Math.ceil((8 + body.length) / pad) * pad, " ");
  out.writeBigUInt64LE(BigInt(out.length - 8));
  body.copy(out, 8);
  return out;
}

/** Bytes that a tensor of this dtype and shape has. */
export function byteLengthOf(dtype: Dtype, shape: readonly number[]): number {
  const bits = dtypes.find(({ name }) => name === dtype)?.bits;
  if (bits === undefined) throw new Error(`no dtype ${dtype}`);
  return (shape.reduce((product, dim) => product * dim, 1) * bits) / 8;
}

/**
 * Bytes that differ from name to name and from place to place, so that a chunk read to a wrong
 * place shows.
 */
export function pattern(name: string, length: number): Buffer {
  let state = [...name].reduce((hash, character) => Math.imul(hash ^ (character.codePointAt(0) ?? 0), 0x01000193), 0x811c9dc5);
  const out = Buffer.alloc(length);
  for (let i = 0; i < length; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) | 0;
    out[i] = state >>> 24;
  }
  return out;
}

/** Writes an index over shards: `{ tensor: file }`. */
export function writeIndex(path: string, weightMap: Readonly<Record<string, string>>): void {
  writeFileSync(path, JSON.stringify({ metadata: {}, weight_map: weightMap }));
}
