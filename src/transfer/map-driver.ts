import type { TransferSummary } from "../native/addon.js";
import { callNative } from "../native/failure.js";
import { addon } from "../native/load.js";
import type { Transfer, TransferBatch, TransferDriver } from "./driver.js";

/**
 * Maps the files privately (copy on write) over their place in a host arena: no byte is copied, pages come from the page cache when they are
 * touched. A file that is cut or overwritten while it is mapped changes the tensors, or kills the process at the next touch (SIGBUS), as with
 * every loader that maps.
 */
export const mapDriver: TransferDriver = {
  name: "map",
  capabilities: { memory: ["host"], copies: false, registrable: false },
  submit(batch: TransferBatch): Transfer {
    callNative(() => addon().mapFiles(batch.arena.native, batch.files, batch.pieces));
    const files = batch.files.paths.length;
    const summary: TransferSummary = {
      bufferedBytes: new Float64Array(files),
      cachedBytes: new Float64Array(files).fill(-1),
      directBytes: new Float64Array(files),
      fallback: new Array<string>(files).fill(""),
      reads: 0,
    };
    let total = 0;
    for (const length of batch.pieces.length) total += length;
    return { done: Promise.resolve(summary), settled: Promise.resolve(), progressBytes: () => total, abort: () => {} };
  },
};
