import { constants } from "node:buffer";
import type { VmmArena } from "../arena/arena.js";
import type { DeviceName } from "../arena/device-name.js";
import { optionInvalid } from "../arguments.js";
import type { TensorInfo } from "../checkpoint/checkpoint.js";
import { type Dtype, dtypes } from "../checkpoint/dtype.js";
import { errorOf } from "../errors.js";
import { custom } from "../inspection.js";
import { awaitNative } from "../native/failure.js";
import type { Bytes } from "../native/hand-typed.js";
import { formatBytes } from "../units.js";
import { Uses } from "./uses.js";

/** Float16Array in programs whose library has it. */
type Float16Elements = typeof globalThis extends { Float16Array: { prototype: infer Elements } } ? Elements : never;

/**
 * The TypedArray over the elements of each dtype; BF16 and 8-bit floats, which JavaScript has no
 * array for, come as the integers of their bits.
 */
export interface TensorArrays {
  BOOL: Uint8Array;
  F4: Uint8Array;
  F6_E2M3: Uint8Array;
  F6_E3M2: Uint8Array;
  U8: Uint8Array;
  I8: Int8Array;
  F8_E5M2: Uint8Array;
  F8_E4M3: Uint8Array;
  F8_E8M0: Uint8Array;
  F8_E4M3FNUZ: Uint8Array;
  F8_E5M2FNUZ: Uint8Array;
  I16: Int16Array;
  U16: Uint16Array;
  /** Float16Array where Node has it (24 and newer), else the integers of the bits. */
  F16: Uint16Array | Float16Elements;
  BF16: Uint16Array;
  I32: Int32Array;
  U32: Uint32Array;
  F32: Float32Array;
  /** Two entries an element. */
  C64: Float32Array;
  F64: Float64Array;
  I64: BigInt64Array;
  U64: BigUint64Array;
}

/** Any of {@link TensorArrays}. */
export type TensorArray = TensorArrays[Dtype];

/** Where a tensor's bytes are, as long as they are there. */
export interface TensorMemory {
  readonly arena: VmmArena;
  readonly device: DeviceName;
  /** Keeps the bytes where they are until the copy or the borrow has ended. */
  whileInUse<T>(work: Promise<T>): Promise<T>;
  /** Throws once the bytes are gone. */
  assertLive(tensor: string): void;
}

/** One for all: a model has tens of thousands. */
const cannotBeCloned = () => "A Tensor stays in its thread: send tensor.toJSON(), or a copy of its bytes";

/** A loaded tensor: name, form, place, and views of its bytes where they are the host's. */
export class Tensor {
  /**
   * @internal A function among the fields: `structuredClone` and `postMessage` refuse it, and quote
   *   it, instead of giving an empty object.
   */
  readonly cannotBeCloned = cannotBeCloned;
  readonly #info: TensorInfo;
  readonly #memory: TensorMemory;
  #buffer: ArrayBuffer | undefined;
  #borrows: Uses | undefined;
  #released = false;
  /** Address of the first byte; stays readable when the bytes are gone. */
  readonly address: bigint;
  /** Where its bytes are. */
  readonly device: DeviceName;

  /** @internal */
  constructor(info: TensorInfo, address: bigint, memory: TensorMemory) {
    this.#info = info;
    this.#memory = memory;
    this.address = address;
    this.device = memory.device;
  }

  get name(): string {
    return this.#info.name;
  }
  get dtype(): Dtype {
    return this.#info.dtype;
  }
  /**
   * Logical elements in each dimension; empty for a scalar. Sub-byte dtypes count elements, not
   * bytes.
   */
  get shape(): readonly number[] {
    return this.#info.shape;
  }
  get byteLength(): number {
    return this.#info.byteLength;
  }
  /** Shard of the checkpoint that it came from. */
  get shard(): TensorInfo["shard"] {
    return this.#info.shard;
  }

  /**
   * The tensor's bytes, or a part of them, without a copy. Writes change the tensor in memory,
   * never the file. The view is detached (length 0) when the model is closed or a bounded stream
   * goes on; until then it keeps the memory alive.
   * @throws ERR_TENSOR_RANGE, ERR_TENSOR_VIEW_TOO_LARGE (4 GiB in Node 20), ERR_TENSOR_RELEASED,
   *   ERR_TENSOR_ON_DEVICE: see {@link copyToHost}
   */
  bytes(offset = 0, length?: number): Bytes {
    const wanted = length ?? this.byteLength - Number(offset);
    this.#requireRange("bytes", offset, wanted);
    if (this.device !== "host") {
      throw errorOf(
        "ERR_TENSOR_ON_DEVICE",
        `tensor ${JSON.stringify(this.name)} is in the memory of ${this.device}, which JavaScript cannot look into: await copyToHost()`,
        { facts: { tensor: this.name, device: this.device } },
      );
    }
    return this.#bytes(offset, wanted);
  }

  /**
   * A copy of the tensor's bytes, or a part of them, in JavaScript's own memory, wherever they are.
   * It stays when the model is closed, and `close()` waits for it.
   * @throws ERR_TENSOR_RANGE, ERR_TENSOR_VIEW_TOO_LARGE, ERR_TENSOR_RELEASED, ERR_CUDA_CALL;
   *   ERR_ARENA_NOT_LOADABLE for the memory of a device behind a backend written in JavaScript
   */
  async copyToHost(offset = 0, length?: number): Promise<Bytes> {
    const wanted = length ?? this.byteLength - Number(offset);
    this.#requireRange("copyToHost", offset, wanted);
    if (this.device === "host" || wanted === 0) return this.#bytes(offset, wanted).slice();
    const { arena } = this.#memory;
    return this.#memory.whileInUse(awaitNative(() => arena.native.copyToHost(this.address + BigInt(offset), wanted)));
  }

  /**
   * Calls `work` with the tensor's bytes and keeps them in place, and their view whole, until what
   * it returns has settled: `close()` and the next step of a bounded stream wait for that. So a
   * response or a file can be written out of the memory itself:
   * `await tensor.use((bytes) => writeFile(path, bytes))`. Gives what `work` gives. For more than
   * one view, or parts, see `model.borrow()`.
   * @throws what `work` throws; the errors of {@link bytes}, ERR_TENSOR_RELEASED also once
   *   `close()` was called; ERR_OPTION_INVALID
   */
  async use<T>(work: (bytes: Bytes) => T | PromiseLike<T>): Promise<T> {
    if (typeof work !== "function") throw optionInvalid("use(work)", "a function", work);
    const bytes = this.bytes();
    const pin = bytes.length === 0 ? undefined : this.#memory.arena.native.pin(this.address, bytes.length);
    const borrowed = async () => {
      try {
        return await work(bytes);
      } finally {
        pin?.release();
      }
    };
    this.#borrows ??= new Uses();
    return this.#memory.whileInUse(this.#borrows.during(borrowed()));
  }

  #requireRange(method: string, offset: number, length: number): void {
    this.#assertLive();
    if (!Number.isSafeInteger(offset) || !Number.isSafeInteger(length) || offset < 0 || length < 0 || offset + length > this.byteLength) {
      throw errorOf(
        "ERR_TENSOR_RANGE",
        `${method}(${offset}, ${length}) leaves the ${this.byteLength} bytes of tensor ${JSON.stringify(this.name)}`,
        {
          facts: { tensor: this.name, offset, length, byteLength: this.byteLength },
        },
      );
    }
    if (length > constants.MAX_LENGTH) {
      throw errorOf(
        "ERR_TENSOR_VIEW_TOO_LARGE",
        `a view of ${length} bytes of tensor ${JSON.stringify(this.name)} is longer than an ArrayBuffer of Node ${process.version} can be ` +
          `(${constants.MAX_LENGTH}): take parts with ${method}(offset, length)`,
        { facts: { tensor: this.name, length, maxLength: constants.MAX_LENGTH } },
      );
    }
  }

  #bytes(offset: number, length: number): Bytes {
    if (length === 0) return new Uint8Array(0);
    if (this.byteLength > constants.MAX_LENGTH) {
      return new Uint8Array(this.#view(offset, length));
    }
    // Length 0: somebody transferred the buffer away.
    if (this.#buffer === undefined || this.#buffer.byteLength === 0) this.#buffer = this.#view(0, this.byteLength);
    return new Uint8Array(this.#buffer, offset, length);
  }

  /**
   * The tensor's elements without a copy, as the TypedArray that fits its dtype: see
   * {@link TensorArrays}. With the dtype given the array is of that type, and a tensor of another
   * dtype is an error.
   * @throws ERR_TENSOR_DTYPE; ERR_TENSOR_UNALIGNED where packed placement left it off its element
   *   size; the errors of {@link bytes}
   */
  typed(): TensorArray;
  typed<Expected extends Dtype>(dtype: Expected): TensorArrays[Expected];
  typed(dtype = this.dtype): TensorArray {
    if (dtype !== this.dtype) {
      throw errorOf("ERR_TENSOR_DTYPE", `tensor ${JSON.stringify(this.name)} is ${this.dtype}, not ${String(dtype)}`, {
        facts: { tensor: this.name, dtype: this.dtype, expected: dtype },
      });
    }
    const { alignBytes } = dtypes.find((entry) => entry.name === dtype) ?? { alignBytes: 1 };
    if (this.byteLength > 0 && this.address % BigInt(alignBytes) !== 0n) {
      throw errorOf(
        "ERR_TENSOR_UNALIGNED",
        `tensor ${JSON.stringify(this.name)} (${dtype}) stands at address 0x${this.address.toString(16)}, no multiple of ${alignBytes}: ` +
          'load it with placement "auto" or "aligned", or use bytes()',
        { facts: { tensor: this.name, alignBytes } },
      );
    }
    const { buffer, byteOffset, byteLength } = this.bytes();
    const count = byteLength / alignBytes;
    switch (dtype) {
      case "I8":
        return new Int8Array(buffer, byteOffset, count);
      case "I16":
        return new Int16Array(buffer, byteOffset, count);
      case "F16":
        return new (float16Array() ?? Uint16Array)(buffer, byteOffset, count);
      case "U16":
      case "BF16":
        return new Uint16Array(buffer, byteOffset, count);
      case "I32":
        return new Int32Array(buffer, byteOffset, count);
      case "U32":
        return new Uint32Array(buffer, byteOffset, count);
      case "F32":
      case "C64":
        return new Float32Array(buffer, byteOffset, count);
      case "F64":
        return new Float64Array(buffer, byteOffset, count);
      case "I64":
        return new BigInt64Array(buffer, byteOffset, count);
      case "U64":
        return new BigUint64Array(buffer, byteOffset, count);
      default:
        return new Uint8Array(buffer, byteOffset, byteLength);
    }
  }

  /** What identifies the tensor, without its bytes. */
  toJSON(): {
    name: string;
    dtype: Dtype;
    shape: readonly number[];
    byteLength: number;
    address: string;
    device: DeviceName;
    shard: string;
  } {
    const { name, dtype, shape, byteLength, device } = this;
    return { name, dtype, shape, byteLength, address: `0x${this.address.toString(16)}`, device, shard: this.shard.name };
  }

  /** @internal One line for `util.inspect`. */
  [custom](): string {
    const { name, dtype, shape, byteLength, address, device, shard } = this;
    const place = `0x${address.toString(16)}${device === "host" ? "" : ` on ${device}`}`;
    return `Tensor ${JSON.stringify(name)} ${dtype} [${shape.join(", ")}], ${formatBytes(byteLength)} at ${place}, from ${JSON.stringify(shard.name)}`;
  }

  /**
   * @internal Waits for the borrows of this tensor, but no longer than so many milliseconds. True
   *   when there are none any more.
   */
  async returned(timeoutMs?: number): Promise<boolean> {
    return this.#borrows === undefined || this.#borrows.ended(timeoutMs);
  }

  /** @internal Detaches the views of a tensor whose place is about to be filled anew. */
  release(): void {
    this.#released = true;
    this.#buffer = undefined;
    this.#memory.arena.endViews(this.address, this.byteLength);
  }

  #view(offset: number, length: number): ArrayBuffer {
    return this.#memory.arena.view(this.address + BigInt(offset), length);
  }

  #assertLive(): void {
    if (this.#released) {
      throw errorOf("ERR_TENSOR_RELEASED", `the bytes of tensor ${JSON.stringify(this.name)} lived until the stream's next step`, {
        facts: { tensor: this.name },
      });
    }
    this.#memory.assertLive(this.name);
  }
}

/** Node's own, from version 24 on. */
function float16Array(): Uint16ArrayConstructor | undefined {
  return (globalThis as { Float16Array?: Uint16ArrayConstructor }).Float16Array;
}
