import { type Allocation, releaseInBackground } from "../../arena/allocation.js";
import { entryOf } from "../../columns.js";
import { errorOf, hasCode } from "../../errors.js";
import { awaitNative } from "../../native/failure.js";
import type { Bytes } from "../../native/hand-typed.js";
import { addressText } from "../../plain-data.js";
import type { WindowsSummary } from "../nixl/windows.js";
import type { GdsPath } from "./path-statistics.js";

/** What a batch really did. */
export interface GdsReport extends WindowsSummary {
  /** File that was read. */
  readonly file: string;
  readonly device: string;
  readonly plugin: string;
  readonly registration: "chunks" | "whole";
  /** Bytes allocated, with the gaps between buffers. */
  readonly allocationBytes: number;
  readonly totalMs: number;
  /** How bytes came to the device, as counters prove it; see {@link GdsPath}. */
  readonly path: "host" | GdsPath["taken"];
  /** What says so, or why nothing does. */
  readonly pathWhy: string;
}

/** One range of the file, on the device. Valid until its batch is closed. */
export class DeviceBuffer {
  /** First byte on the device; 0 for a buffer without bytes. */
  readonly address: bigint;
  readonly byteLength: number;
  readonly device: string;
  readonly #batch: GdsBatch;

  /** @internal */
  constructor(batch: GdsBatch, address: bigint, byteLength: number, device: string) {
    this.#batch = batch;
    this.address = address;
    this.byteLength = byteLength;
    this.device = device;
  }

  /**
   * The bytes themselves, without a copy. They are detached when the batch is closed.
   * @throws ERR_TENSOR_RELEASED; ERR_TENSOR_ON_DEVICE: see {@link copyToHost};
   *   ERR_TENSOR_VIEW_TOO_LARGE
   */
  bytes(): Bytes {
    const memory = this.#batch.memory;
    if (this.byteLength === 0 || memory === undefined) return new Uint8Array(0);
    if (memory.arena.memory === "device") {
      const message = `the buffer is in the memory of ${this.device}, which JavaScript cannot look into: await copyToHost()`;
      throw errorOf("ERR_TENSOR_ON_DEVICE", message, { facts: { device: this.device } });
    }
    return new Uint8Array(memory.arena.view(this.address, this.byteLength));
  }

  /** A copy of the bytes in JavaScript's memory. @throws ERR_TENSOR_RELEASED; ERR_CUDA_CALL */
  async copyToHost(): Promise<Bytes> {
    const memory = this.#batch.memory;
    if (memory === undefined || this.byteLength === 0 || memory.arena.memory === "host") return this.bytes().slice();
    return this.#batch.whileOpen(awaitNative(() => memory.arena.native.copyToHost(this.address, this.byteLength)));
  }

  /** Where the buffer is, without its bytes. */
  toJSON() {
    const { address, byteLength, device } = this;
    return { address: addressText(address), byteLength, device };
  }
}

/**
 * All buffers of one `batchLoadFile`, in the order of its ranges, and what it did. Outlives the
 * manager. Close it to give the memory back.
 */
export class GdsBatch {
  readonly buffers: readonly DeviceBuffer[];
  readonly report: GdsReport;
  readonly #memory: Allocation | undefined;
  readonly #copies = new Set<Promise<unknown>>();
  #closed = false;
  #closing: Promise<void> | undefined;

  /**
   * @internal
   * @param at offsets of the buffers from the memory's address
   */
  constructor(memory: Allocation | undefined, at: Float64Array, byteLengths: readonly number[], report: GdsReport) {
    this.#memory = memory;
    this.report = Object.freeze(report);
    this.buffers = Object.freeze(
      byteLengths.map((bytes, row) => {
        const address = memory === undefined || bytes === 0 ? 0n : memory.address + BigInt(entryOf(at, row));
        return new DeviceBuffer(this, address, bytes, report.device);
      }),
    );
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** @internal @throws ERR_TENSOR_RELEASED */
  get memory(): Allocation | undefined {
    if (this.#closed) throw errorOf("ERR_TENSOR_RELEASED", "the buffers of this batch were given back by its close()");
    return this.#memory;
  }

  /** @internal Keeps the batch open until the copy of a buffer has ended. */
  whileOpen<T>(copy: Promise<T>): Promise<T> {
    this.#copies.add(copy);
    const forget = () => this.#copies.delete(copy);
    copy.then(forget, forget);
    return copy;
  }

  /**
   * Waits for copies to the host in flight, then gives the memory back, in the arena of `into` by
   * its `free`. Closing again does nothing.
   * @throws ERR_ARENA_BUSY while something else, such as a registration, holds it; the batch then
   *   stays open
   */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    try {
      while (this.#copies.size > 0) await Promise.allSettled(this.#copies);
      const releasing = this.#memory && releaseInBackground(this.#memory);
      this.#closed = true;
      await releasing;
    } catch (error) {
      this.#closing = undefined;
      if (hasCode(error, "ERR_ARENA_BUSY")) this.#closed = false;
      throw error;
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
