import type { TransferFiles, TransferSummary } from "../../native/addon.js";
import type { BatchSummary } from "../driver.js";
import { identityOf } from "../files.js";

/** Adds up what the windows of a batch did. */
export class SummarySum {
  readonly #bufferedBytes: Float64Array;
  readonly #directBytes: Float64Array;
  /** -1 for a file that no window read, NaN once one did not ask. */
  readonly #cachedBytes: Float64Array;
  readonly #directByThreads: Uint8Array;
  readonly #unkept: Uint8Array;
  readonly #fallback: Set<string>[];
  #reads = 0;

  constructor(files: number) {
    this.#bufferedBytes = new Float64Array(files);
    this.#directBytes = new Float64Array(files);
    this.#cachedBytes = new Float64Array(files).fill(-1);
    this.#directByThreads = new Uint8Array(files);
    this.#unkept = new Uint8Array(files);
    this.#fallback = Array.from({ length: files }, () => new Set<string>());
  }

  /** @param files the batch's number of each file of the window */
  add(files: readonly number[], window: TransferSummary): void {
    for (const [row, file] of files.entries()) {
      this.#bufferedBytes[file] = (this.#bufferedBytes[file] ?? 0) + (window.bufferedBytes[row] ?? 0);
      this.#directBytes[file] = (this.#directBytes[file] ?? 0) + (window.directBytes[row] ?? 0);
      const [known, cached] = [this.#cachedBytes[file] ?? -1, window.cachedBytes[row] ?? -1];
      this.#cachedBytes[file] = cached === -1 ? Number.NaN : known === -1 ? cached : known + cached;
      if (window.directByThreads[row] === 1) this.#directByThreads[file] = 1;
      this.#unkept[file] = (this.#unkept[file] ?? 0) | (window.unkept[row] ?? 0);
      const reason = window.fallback[row] ?? "";
      if (reason !== "") this.#fallback[file]?.add(reason);
    }
    this.#reads += window.reads;
  }

  build(): BatchSummary {
    return {
      bufferedBytes: this.#bufferedBytes,
      cachedBytes: this.#cachedBytes.map((bytes) => (Number.isNaN(bytes) ? -1 : bytes)),
      directBytes: this.#directBytes,
      fallback: this.#fallback.map((reasons) => [...reasons].join("; ")),
      reads: this.#reads,
      directByThreads: this.#directByThreads,
      unkept: this.#unkept,
      ways: Array.from(this.#bufferedBytes, (bytes, file) => (bytes + (this.#directBytes[file] ?? 0) > 0 ? "staged" : undefined)),
    };
  }
}

/** These rows of the columns. */
export function filesOf(files: TransferFiles, rows: readonly number[]): TransferFiles {
  return {
    paths: rows.map((row) => files.paths[row] ?? ""),
    size: Float64Array.from(rows, (row) => files.size[row] ?? 0),
    identity: identityOf(files, rows),
    dioOffsetAlign: Uint32Array.from(rows, (row) => files.dioOffsetAlign[row] ?? 0),
    dioMemAlign: Uint32Array.from(rows, (row) => files.dioMemAlign[row] ?? 0),
  };
}
