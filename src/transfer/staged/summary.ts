import { entryOf } from "../../columns.js";
import type { TransferFiles, TransferSummary } from "../../native/addon.js";
import type { BatchSummary } from "../driver.js";
import { identityOf } from "../files.js";

/** Adds up what the windows of a batch did. */
export class SummarySum {
  readonly #bufferedBytes: Float64Array;
  readonly #directBytes: Float64Array;
  /** undefined for a file that no window read, null once one did not ask. */
  readonly #cachedBytes: (number | null | undefined)[];
  readonly #directByThreads: Uint8Array;
  readonly #unkept: Uint8Array;
  readonly #fallback: Set<string>[];
  #reads = 0;

  constructor(files: number) {
    this.#bufferedBytes = new Float64Array(files);
    this.#directBytes = new Float64Array(files);
    this.#cachedBytes = new Array<undefined>(files).fill(undefined);
    this.#directByThreads = new Uint8Array(files);
    this.#unkept = new Uint8Array(files);
    this.#fallback = Array.from({ length: files }, () => new Set<string>());
  }

  /** @param files the batch's number of each file of the window */
  add(files: readonly number[], window: TransferSummary): void {
    for (const [row, file] of files.entries()) {
      this.#bufferedBytes[file] = entryOf(this.#bufferedBytes, file) + entryOf(window.bufferedBytes, row);
      this.#directBytes[file] = entryOf(this.#directBytes, file) + entryOf(window.directBytes, row);
      const [known, cached] = [this.#cachedBytes[file], entryOf(window.cachedBytes, row)];
      this.#cachedBytes[file] = known === null || cached === null ? null : (known ?? 0) + cached;
      if (window.directByThreads[row] === 1) this.#directByThreads[file] = 1;
      this.#unkept[file] = entryOf(this.#unkept, file) | entryOf(window.unkept, row);
      const reason = entryOf(window.fallback, row);
      if (reason !== "") this.#fallback[file]?.add(reason);
    }
    this.#reads += window.reads;
  }

  build(): BatchSummary {
    return {
      bufferedBytes: this.#bufferedBytes,
      cachedBytes: this.#cachedBytes.map((bytes) => bytes ?? null),
      directBytes: this.#directBytes,
      fallback: this.#fallback.map((reasons) => [...reasons].join("; ")),
      reads: this.#reads,
      directByThreads: this.#directByThreads,
      unkept: this.#unkept,
      ways: Array.from(this.#bufferedBytes, (bytes, file) => (bytes + entryOf(this.#directBytes, file) > 0 ? "staged" : undefined)),
    };
  }
}

/** These rows of the columns. */
export function filesOf(files: TransferFiles, rows: readonly number[]): TransferFiles {
  return {
    paths: rows.map((row) => entryOf(files.paths, row)),
    size: Float64Array.from(rows, (row) => entryOf(files.size, row)),
    identity: identityOf(files, rows),
    dioOffsetAlign: Uint32Array.from(rows, (row) => entryOf(files.dioOffsetAlign, row)),
    dioMemAlign: Uint32Array.from(rows, (row) => entryOf(files.dioMemAlign, row)),
  };
}
