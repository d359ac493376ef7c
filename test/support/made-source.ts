import { dtypeTable } from "../../src/checkpoint/dtype.js";
import type { PlanSource } from "../../src/plan/source.js";

export interface MadeTensor {
  readonly name: string;
  readonly dtype?: (typeof dtypeTable)[number][0];
  readonly length: number;
  /** Absolute; default: right after the tensor before it. */
  readonly offset?: number;
}

export interface MadeShard {
  readonly dataStart?: number;
  /** Default: the end of the last tensor. */
  readonly byteLength?: number;
  readonly dioOffsetAlign?: number;
  readonly dioMemAlign?: number;
  /** Default 8 MiB. */
  readonly readAheadBytes?: number;
  readonly cachedUnderAuto?: boolean;
  readonly tensors: readonly MadeTensor[];
}

/** A checkpoint that exists only as columns, for plans without files and without the addon. */
export function madeSource(shards: readonly MadeShard[]): PlanSource {
  const names: string[] = [];
  const dtype: number[] = [];
  const shard: number[] = [];
  const offset: number[] = [];
  const length: number[] = [];
  const size: number[] = [];
  for (const [index, made] of shards.entries()) {
    let cursor = made.dataStart ?? 8;
    for (const tensor of made.tensors) {
      const at = tensor.offset ?? cursor;
      names.push(tensor.name);
      dtype.push(dtypeTable.findIndex(([name]) => name === (tensor.dtype ?? "U8")));
      shard.push(index);
      offset.push(at);
      length.push(tensor.length);
      cursor = at + tensor.length;
    }
    size.push(made.byteLength ?? cursor);
  }
  const nameBytes = new TextEncoder().encode(names.join(""));
  let end = 0;
  return {
    path: "/models/made",
    shards: shards.map((_, index) => ({ file: `/models/made/${index}.safetensors`, name: `${index}.safetensors` })),
    columns: {
      count: names.length,
      nameBytes,
      nameEnd: Float64Array.from(names, (name) => {
        end += Buffer.byteLength(name);
        return end;
      }),
      namesAscii: nameBytes.length === names.join("").length,
      dtype: Uint8Array.from(dtype),
      shard: Uint32Array.from(shard),
      offset: Float64Array.from(offset),
      length: Float64Array.from(length),
      dimEnd: new Uint32Array(names.length),
      dims: new Float64Array(0),
    },
    shardColumns: {
      size: Float64Array.from(size),
      dataStart: Float64Array.from(shards, ({ dataStart }) => dataStart ?? 8),
      identity: new BigUint64Array(6 * shards.length),
      dioOffsetAlign: Uint32Array.from(shards, ({ dioOffsetAlign }) => dioOffsetAlign ?? 512),
      dioMemAlign: Uint32Array.from(shards, ({ dioMemAlign }) => dioMemAlign ?? 512),
      readAheadBytes: Float64Array.from(shards, ({ readAheadBytes }) => readAheadBytes ?? 8 * 2 ** 20),
      cachedUnderAuto: Uint8Array.from(shards, ({ cachedUnderAuto }) => (cachedUnderAuto ? 1 : 0)),
    },
    nameOf: (row) => names[row] ?? "",
    rowOf: (name) => names.indexOf(name),
  };
}
