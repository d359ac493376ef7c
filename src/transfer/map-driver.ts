import type { TransferSummary } from "../native/addon.js";
import { awaitNative } from "../native/failure.js";
import { addon } from "../native/load.js";
import type { Transfer, TransferBatch, TransferDriver } from "./driver.js";
import { noDriverBytes, readAheadOf } from "./driver-bytes.js";

/**
 * Maps the files privately (copy on write) over their place in a host arena: no byte is copied,
 * pages come from the page cache when they are touched. A file that is cut or overwritten while it
 * is mapped changes the tensors, or kills the process at the next touch (SIGBUS), as with every
 * loader that maps.
 */
export const mapDriver: TransferDriver = {
  name: "map",
  capabilities: { memory: ["host"], copies: false, registrable: false },
  takes: (shape) => ({ ...noDriverBytes, ringBytes: readAheadOf(shape, shape.bytes, shape.threads) }),
  forecast: () => [
    { path: "map", of: "all: read by whoever touches the pages first", reads: 0, maxReadBytes: 0, alignBytes: addon().pageBytes() },
  ],
  submit(batch: TransferBatch): Transfer {
    const files = batch.files.paths.length;
    const summaryOf = (unkept: Uint8Array): TransferSummary => ({
      bufferedBytes: new Float64Array(files),
      cachedBytes: new Array<null>(files).fill(null),
      directBytes: new Float64Array(files),
      fallback: new Array<string>(files).fill(""),
      reads: 0,
      directByThreads: new Uint8Array(files),
      unkept,
    });
    const total = batch.pieces.length.reduce((sum, length) => sum + length, 0);
    let mapped = 0;
    const mapping = awaitNative(() => addon().mapFiles(batch.arena.native, batch.files, batch.pieces));
    const done = mapping.then((unkept) => {
      mapped = total;
      return summaryOf(unkept);
    });
    const settled = mapping.then(
      () => {},
      () => {},
    );
    return { done, settled, progressBytes: () => mapped, abort: () => {} };
  },
};
