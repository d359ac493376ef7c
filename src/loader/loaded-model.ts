import type { VmmArena } from "../arena/arena.js";
import type { Checkpoint } from "../checkpoint/checkpoint.js";
import { LazyMap } from "../checkpoint/lazy-map.js";
import { errorOf } from "../errors.js";
import { awaitNative } from "../native/failure.js";
import { addon } from "../native/load.js";
import { type LoadPlan, planColumns } from "../plan/load-plan.js";
import { addressColumn } from "../transfer/addresses.js";
import { within } from "../transfer/waiting.js";
import { digestBytes, digestDevice } from "./digest-device.js";
import type { LoadMemory } from "./load-memory.js";
import type { LoadReport } from "./report.js";
import { Tensor, type TensorMemory } from "./tensor.js";

export interface LoadedModelParts {
  readonly checkpoint: Checkpoint;
  readonly plan: LoadPlan;
  readonly report: LoadReport;
  readonly memory: LoadMemory;
  readonly threads: number;
  readonly closeTimeoutMs: number;
}

/**
 * A checkpoint in memory. It owns one allocation of its arena, and the arena where the load made it; `close()` gives them back. Unclosed, they are
 * given back when neither the model nor a view of it can be reached any more.
 */
export class LoadedModel implements AsyncDisposable {
  /** Tensors by name, in the order of shards and file offsets; a tensor's object is made when it is asked for. */
  readonly tensors: ReadonlyMap<string, Tensor>;
  /** `__metadata__` of all shards; the first shard that has a key wins. */
  readonly metadata: ReadonlyMap<string, string>;
  readonly checkpoint: Checkpoint;
  readonly plan: LoadPlan;
  readonly report: LoadReport;
  /** Arena that holds the tensors. */
  readonly arena: VmmArena;
  readonly #parts: LoadedModelParts;
  /** Digests and copies in flight. */
  readonly #inUse = new Set<Promise<unknown>>();
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
      whileInUse: (copy) => this.#whileInUse(copy),
      assertLive: (tensor) => {
        if (this.#closed || arena.closed) {
          throw errorOf("ERR_TENSOR_RELEASED", `the bytes of tensor ${JSON.stringify(tensor)} went with its model, which is closed`, {
            facts: { tensor },
          });
        }
      },
    };
    this.tensors = selectedRows(checkpoint, columns.rows, (at, row) => {
      return new Tensor(checkpoint.tensorAt(row), base + BigInt(columns.addressOffset[at] ?? 0), memory);
    });
  }

  get closed(): boolean {
    return this.#closed;
  }

  /**
   * SHA-256 of every tensor's bytes where they lie now, as hex by name; computed on native threads, of a device's memory by copies.
   * @throws ERR_TENSOR_RELEASED after `close()`
   */
  async digest(): Promise<ReadonlyMap<string, string>> {
    if (this.#closed) throw errorOf("ERR_TENSOR_RELEASED", "the model is closed: there are no bytes to hash");
    const { checkpoint, plan, arena } = this;
    const { threads, memory } = this.#parts;
    const { rows, addressOffset } = planColumns(plan);
    const addresses = addressColumn(memory.base, addressOffset);
    const lengths = new Float64Array(rows.length);
    for (let at = 0; at < rows.length; at++) lengths[at] = checkpoint.columns.length[rows[at] ?? 0] ?? 0;
    const onHost = plan.device === "host";
    const hash = () =>
      onHost
        ? awaitNative(() => addon().digestMemory(arena.native, addresses, lengths, threads))
        : digestDevice(arena.native, addresses, lengths);
    const digests = Buffer.from(await this.#whileInUse(hash()));
    const hexAt = (at: number) => digests.toString("hex", at * digestBytes, (at + 1) * digestBytes);
    return selectedRows(checkpoint, rows, hexAt);
  }

  /**
   * Detaches all views and gives the memory back. Waits up to `closeTimeoutMs` for digests and copies in flight. A second call does nothing.
   * @throws ERR_TRANSFER_STUCK; ERR_ARENA_BUSY while its memory is registered: close the registration, then try again
   */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #whileInUse<T>(work: Promise<T>): Promise<T> {
    this.#inUse.add(work);
    const forget = () => this.#inUse.delete(work);
    work.then(forget, forget);
    return work;
  }

  async #close(): Promise<void> {
    this.#closed = true;
    const { memory, closeTimeoutMs } = this.#parts;
    if (this.#inUse.size > 0 && !(await within(Promise.allSettled(this.#inUse), closeTimeoutMs))) {
      this.#closing = undefined;
      throw errorOf("ERR_TRANSFER_STUCK", `a digest or a copy was still running ${closeTimeoutMs} ms after close()`);
    }
    try {
      await memory.release();
    } catch (error) {
      this.#closing = undefined; // So that it can be tried again.
      throw error;
    }
  }
}

/** The selected rows of a checkpoint as a map; `make` gets the position among the selected, and the row. */
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
    nameOf: (at) => checkpoint.nameOf(rows[at] ?? 0),
    make: (at) => make(at, rows[at] ?? 0),
  });
}
