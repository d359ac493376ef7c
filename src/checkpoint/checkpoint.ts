import { entryOf } from "../columns.js";
import { custom, shownAs } from "../inspection.js";
import type { NativeHeaders, ShardColumns, TensorColumns } from "../native/addon.js";
import { formatBytes } from "../units.js";
import { type Dtype, dtypes } from "./dtype.js";
import { LazyMap } from "./lazy-map.js";
import { TensorNames } from "./names.js";
import { unknownTensor } from "./unknown-tensor.js";

/** One safetensors file of a checkpoint. */
export interface Shard {
  /** Position in {@link Checkpoint.shards}. */
  readonly index: number;
  /** Absolute path, symbolic links not followed. */
  readonly file: string;
  /** The name as the index spells it, or the base name of the file. */
  readonly name: string;
  /** Size of the file in bytes. */
  readonly byteLength: number;
  /** File offset of the first data byte. */
  readonly dataOffset: number;
  /**
   * Tensors of the checkpoint that are in this file; where an index leaves some out, they do not
   * count.
   */
  readonly tensorCount: number;
  /**
   * Alignment in bytes that direct I/O needs of file offsets and of memory; 0 where the kernel does
   * not say.
   */
  readonly dioOffsetAlignBytes: number;
  readonly dioMemAlignBytes: number;
  /** The header's `__metadata__`. */
  readonly metadata: ReadonlyMap<string, string>;
}

/** What a header says of one tensor. */
export interface TensorInfo {
  readonly name: string;
  readonly dtype: Dtype;
  /**
   * Logical elements in each dimension; empty for a scalar. Sub-byte dtypes count elements, not
   * bytes.
   */
  readonly shape: readonly number[];
  readonly byteLength: number;
  /** File offset of the first byte in the shard's file. */
  readonly offset: number;
  readonly shard: Shard;
}

/** Where a checkpoint's files are. */
export interface CheckpointFiles {
  readonly path: string;
  readonly kind: "file" | "index" | "folder";
  readonly indexFile: string | undefined;
  readonly shards: readonly { readonly file: string; readonly name: string }[];
}

/**
 * The validated headers of a checkpoint: names, dtypes, shapes and places of all tensors, none of
 * their bytes. Immutable; holds no file open. Made by `openCheckpoint`.
 */
export class Checkpoint {
  /**
   * @internal A function among the fields: `structuredClone` and `postMessage` refuse it, and quote
   *   it, instead of giving an empty object.
   */
  readonly cannotBeCloned = () => "A Checkpoint stays in its thread: send checkpoint.path and open it there";
  /** Absolute path that was opened. */
  readonly path: string;
  /** What `path` is. */
  readonly kind: "file" | "index" | "folder";
  /** The index that says which shard holds which tensor, if there is one. */
  readonly indexFile: string | undefined;
  readonly shards: readonly Shard[];
  /**
   * Tensors by name, in the order of shards and file offsets. Objects are made on access, the
   * lookup is native.
   */
  readonly tensors: ReadonlyMap<string, TensorInfo>;
  /** @internal */
  readonly columns: TensorColumns;
  /** @internal */
  readonly shardColumns: ShardColumns;
  readonly #names: TensorNames;
  #byteLength: number | undefined;
  #parameterCount: number | undefined;
  #metadata: ReadonlyMap<string, string> | undefined;

  /** @internal */
  constructor(files: CheckpointFiles, headers: NativeHeaders) {
    this.path = files.path;
    this.kind = files.kind;
    this.indexFile = files.indexFile;
    this.columns = headers.tensorColumns();
    this.shardColumns = headers.shardColumns();
    this.#names = new TensorNames(headers, this.columns);
    this.shards = Object.freeze(makeShards(files, headers, this.shardColumns, this.columns));
    this.tensors = new LazyMap<TensorInfo>({
      count: this.columns.count,
      rowOf: (name) => this.rowOf(name),
      nameOf: (row) => this.nameOf(row),
      make: (row) => this.tensorAt(row),
    });
    Object.freeze(this);
  }

  get tensorCount(): number {
    return this.columns.count;
  }

  /** Sum of all tensors' bytes. */
  get byteLength(): number {
    this.#byteLength ??= this.columns.length.reduce((sum, length) => sum + length, 0);
    return this.#byteLength;
  }

  /** Logical elements of all tensors, as their shapes give them. */
  get parameterCount(): number {
    this.#parameterCount ??= countElements(this.columns);
    return this.#parameterCount;
  }

  /** `__metadata__` of all shards; where two have the same key, the first shard's value. */
  get metadata(): ReadonlyMap<string, string> {
    this.#metadata ??= new Map(this.shards.toReversed().flatMap((shard) => [...shard.metadata]));
    return this.#metadata;
  }

  /**
   * What the header says of the tensor of that name. @throws ERR_TENSOR_UNKNOWN with the nearest
   * names
   */
  requireTensor(name: string): TensorInfo {
    const tensor = this.tensors.get(name);
    if (tensor === undefined) throw unknownTensor(name, this.tensors, this.path);
    return tensor;
  }

  /** Files, sums and metadata, without the tensors. */
  toJSON() {
    const { path, kind, indexFile, tensorCount, parameterCount, byteLength, metadata } = this;
    const shards = this.shards.map((shard) => ({ name: shard.name, byteLength: shard.byteLength, tensorCount: shard.tensorCount }));
    return { path, kind, indexFile, tensorCount, parameterCount, byteLength, metadata: Object.fromEntries(metadata), shards };
  }

  /** @internal A short form for `util.inspect`. */
  [custom](depth: number, options: object): string {
    const { path, kind, tensorCount, parameterCount, byteLength, shards } = this;
    const facts = { path, kind, shards: shards.length, tensors: tensorCount, parameters: parameterCount, bytes: formatBytes(byteLength) };
    return shownAs("Checkpoint", facts, depth, options);
  }

  /** @internal */
  nameOf(row: number): string {
    return this.#names.nameOf(row);
  }

  /** @internal Row of the tensor of that name, or -1. */
  rowOf(name: string): number {
    return this.#names.rowOf(name);
  }

  /** @internal What the header says of the tensor in a row; a new object each time. */
  tensorAt(row: number): TensorInfo {
    const { columns, shards } = this;
    const dtype = dtypes[entryOf(columns.dtype, row)];
    const shard = shards[entryOf(columns.shard, row)];
    if (dtype === undefined || shard === undefined) throw new RangeError(`row ${row} has no dtype or no shard`);
    // Plain loops: building an array from a typed one costs ten times as much, and models have tens
    // of thousands of tensors.
    const shape: number[] = [];
    for (let dim = row === 0 ? 0 : entryOf(columns.dimEnd, row - 1); dim < entryOf(columns.dimEnd, row); dim++)
      shape.push(entryOf(columns.dims, dim));
    Object.freeze(shape);
    const name = this.nameOf(row);
    return Object.freeze({
      name,
      dtype: dtype.name,
      shape,
      byteLength: entryOf(columns.length, row),
      offset: entryOf(columns.offset, row),
      shard,
    });
  }
}

function makeShards({ shards }: CheckpointFiles, headers: NativeHeaders, facts: ShardColumns, columns: TensorColumns): Shard[] {
  return shards.map(({ file, name }, index) => {
    let metadata: ReadonlyMap<string, string> | undefined;
    return Object.freeze({
      index,
      file,
      name,
      byteLength: entryOf(facts.size, index),
      dataOffset: entryOf(facts.dataStart, index),
      tensorCount: firstRow(columns, index + 1) - firstRow(columns, index),
      dioOffsetAlignBytes: entryOf(facts.dioOffsetAlign, index),
      dioMemAlignBytes: entryOf(facts.dioMemAlign, index),
      get metadata() {
        metadata ??= pairs(headers.metadata(index));
        return metadata;
      },
    });
  });
}

/** First row whose shard is `shard` or a later one. */
function firstRow({ shard: column, count }: TensorColumns, shard: number): number {
  let [low, high] = [0, count];
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    if (entryOf(column, middle) < shard) low = middle + 1;
    else high = middle;
  }
  return low;
}

function pairs(flat: readonly string[]): ReadonlyMap<string, string> {
  const map = new Map<string, string>();
  for (let i = 0; i + 1 < flat.length; i += 2) map.set(flat[i] ?? "", flat[i + 1] ?? "");
  return map;
}

function countElements({ count, dims, dimEnd }: TensorColumns): number {
  let total = 0;
  for (let row = 0, dim = 0; row < count; row++) {
    let elements = 1;
    for (const end = entryOf(dimEnd, row); dim < end; dim++) elements *= entryOf(dims, dim);
    total += elements;
  }
  return total;
}
