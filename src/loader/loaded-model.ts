import type { VmmArena } from "../arena/arena.js";
import type { Checkpoint } from "../checkpoint/checkpoint.js";
import { LazyMap } from "../checkpoint/lazy-map.js";
import { unknownTensor } from "../checkpoint/unknown-tensor.js";
import { entryOf } from "../columns.js";
import { errorOf } from "../errors.js";
import { custom, shownAs } from "../inspection.js";
import { awaitNative } from "../native/failure.js";
import { addon } from "../native/load.js";
import { type LoadPlan, planColumns } from "../plan/load-plan.js";
import { addressColumn } from "../transfer/addresses.js";
import { formatBytes } from "../units.js";
import { Borrow } from "./borrow.js";
import { digestBytes, digestDevice } from "./digest-device.js";
import type { LoadMemory } from "./load-memory.js";
import type { LoadReport } from "./report.js";
import { Tensor, type TensorMemory } from "./tensor.js";
import { Uses } from "./uses.js";

export interface LoadedModelParts {
  readonly checkpoint: Checkpoint;
  readonly plan: LoadPlan;
  readonly report: LoadReport;
  readonly memory: LoadMemory;
  readonly threads: number;
  readonly closeTimeoutMs: number;
}

/**
 * A checkpoint in memory. It owns one allocation of its arena, and the arena where the load made
 * it; `close()` gives them back. Unclosed, they are given back when neither the model nor a view of
 * it can be reached any more.
 */
export class LoadedModel implements AsyncDisposable {
  /**
   * @internal A function among the fields: `structuredClone` and `postMessage` refuse it, and quote
   *   it, instead of giving an empty object.
   */
  readonly cannotBeCloned = () => "A LoadedModel stays in its thread: send model.toJSON(), or copies of its bytes";
  /**
   * Tensors by name, in the order of shards and file offsets; a tensor's object is made when it is
   * asked for.
   */
  readonly tensors: ReadonlyMap<string, Tensor>;
  /** `__metadata__` of all shards; the first shard that has a key wins. */
  readonly metadata: ReadonlyMap<string, string>;
  readonly checkpoint: Checkpoint;
  readonly plan: LoadPlan;
  readonly report: LoadReport;
  /** Arena that holds the tensors. */
  readonly arena: VmmArena;
  readonly #parts: LoadedModelParts;
  /** Digests, copies and borrows. */
  readonly #uses = new Uses();
  #closed = false;
  #closing: Promise<void> | undefined;

  /** @internal */
  constructor(parts: LoadedModelParts) {
    const { checkpoint, plan } = parts;
    const { arena, base } = parts.memory;
    this.#parts = parts;
    this.checkpoint = checkpoint;
    this.plan = plan;
    this.report = parts.report;
    this.arena = arena;
    this.metadata = checkpoint.metadata;
    const columns = planColumns(plan);
    const memory: TensorMemory = {
      arena,
      device: plan.device,
      whileInUse: (work) => this.#uses.during(work),
      assertLive: (tensor) => {
        if (this.#closed || arena.closed) {
          const gone = this.#closed ? "its model" : "its arena";
          throw errorOf("ERR_TENSOR_RELEASED", `the bytes of tensor ${JSON.stringify(tensor)} went with ${gone}, which is closed`, {
            facts: { tensor },
          });
        }
      },
    };
    this.tensors = selectedRows(checkpoint, columns.rows, (at, row) => {
      return new Tensor(checkpoint.tensorAt(row), base + BigInt(entryOf(columns.addressOffset, at)), memory);
    });
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** The tensor of that name. @throws ERR_TENSOR_UNKNOWN with the nearest names */
  requireTensor(name: string): Tensor {
    const tensor = this.tensors.get(name);
    if (tensor !== undefined) return tensor;
    const { path, tensors } = this.checkpoint;
    throw unknownTensor(
      name,
      this.tensors,
      tensors.has(name) ? `what was loaded of ${path}: \`include\` or \`exclude\` left it out` : path,
    );
  }

  /**
   * Keeps the memory where it is, and views of it whole, until the borrow is released: `close()`
   * waits for that. Take the views before. `using borrow = model.borrow()`; for one tensor
   * `tensor.use()` does it.
   * @throws ERR_TENSOR_RELEASED once `close()` was called
   */
  borrow(): Borrow {
    if (this.#closed || this.arena.closed) throw errorOf("ERR_TENSOR_RELEASED", "the model is closed: there is nothing to borrow");
    const { totals } = this.plan;
    const pin = totals.allocationBytes === 0 ? undefined : this.arena.native.pin(this.#parts.memory.base, totals.allocationBytes);
    return new Borrow(this, this.#uses, pin);
  }

  /** What identifies the model, and its report, without its tensors. */
  toJSON() {
    const { closed, checkpoint, plan, report, metadata, tensors } = this;
    const { path } = checkpoint;
    const address = `0x${this.#parts.memory.base.toString(16)}`;
    const { bytes: byteLength, allocationBytes } = plan.totals;
    const { device } = plan;
    const tensorCount = tensors.size;
    return { path, device, closed, tensorCount, byteLength, address, allocationBytes, metadata: Object.fromEntries(metadata), report };
  }

  /** @internal A short form for `util.inspect`. */
  [custom](depth: number, options: object): string {
    const { path, device, closed, tensorCount, byteLength, address } = this.toJSON();
    return shownAs("LoadedModel", { path, device, tensors: tensorCount, bytes: formatBytes(byteLength), address, closed }, depth, options);
  }

  /**
   * SHA-256 of every tensor's bytes where they lie now, as hex by name; computed on native threads,
   * of a device's memory by copies.
   * @throws ERR_TENSOR_RELEASED after `close()`
   */
  async digest(): Promise<ReadonlyMap<string, string>> {
    if (this.#closed) throw errorOf("ERR_TENSOR_RELEASED", "the model is closed: there are no bytes to hash");
    const { checkpoint, plan, arena } = this;
    const { threads, memory } = this.#parts;
    const { rows, addressOffset } = planColumns(plan);
    const addresses = addressColumn(memory.base, addressOffset);
    const lengths = new Float64Array(rows.length);
    for (let at = 0; at < rows.length; at++) lengths[at] = entryOf(checkpoint.columns.length, entryOf(rows, at));
    const onHost = plan.device === "host";
    const hash = () =>
      onHost
        ? awaitNative(() => addon().digestMemory(arena.native, addresses, lengths, threads))
        : digestDevice(arena.native, addresses, lengths);
    const digests = Buffer.from(await this.#uses.during(hash()));
    const hexAt = (at: number) => digests.toString("hex", at * digestBytes, (at + 1) * digestBytes);
    return selectedRows(checkpoint, rows, hexAt);
  }

  /**
   * Detaches all views and gives the memory back. Waits up to `closeTimeoutMs` for digests, copies
   * and borrows; new ones are refused. A second call does nothing.
   * @throws ERR_TRANSFER_STUCK, and then nothing is given back: try again once they have ended;
   *   ERR_ARENA_BUSY while its memory is registered: close the registration, then try again
   */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(): Promise<void> {
    this.#closed = true;
    const { memory, closeTimeoutMs } = this.#parts;
    if (!(await this.#uses.ended(closeTimeoutMs))) {
      this.#closing = undefined;
      throw errorOf("ERR_TRANSFER_STUCK", `a digest, copy or borrow had not ended ${closeTimeoutMs} ms after close()`);
    }
    try {
      await memory.release();
    } catch (error) {
      this.#closing = undefined; // So that it can be tried again.
      throw error;
    }
  }
}

/**
 * The selected rows of a checkpoint as a map; `make` gets the position among the selected, and the
 * row.
 */
function selectedRows<T>(checkpoint: Checkpoint, rows: Uint32Array, make: (at: number, row: number) => T): LazyMap<T> {
  const all = rows.length === checkpoint.tensorCount;
  let positions: Map<number, number> | undefined;
  const positionOf = (row: number): number => {
    if (row === -1 || all) return row;
    positions ??= new Map(Array.from(rows, (selected, at) => [selected, at]));
    return positions.get(row) ?? -1;
  };
  return new LazyMap<T>({
    count: rows.length,
    rowOf: (name) => positionOf(checkpoint.rowOf(name)),
    nameOf: (at) => checkpoint.nameOf(entryOf(rows, at)),
    make: (at) => make(at, entryOf(rows, at)),
  });
}
