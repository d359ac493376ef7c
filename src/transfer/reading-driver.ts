import type { ReadDriver, TransferSettings, TransferSummary } from "../native/addon.js";
import { callNative, fromNative } from "../native/failure.js";
import { addon } from "../native/load.js";
import { formatBytes, hugePageBytes } from "../units.js";
import { deferred } from "./deferred.js";
import type { ForecastBatch, ForecastWay, Transfer, TransferBatch, TransferDriver } from "./driver.js";
import { bytesOfThread, type DriverBytes, noDriverBytes, type ReadShape, readAheadOf } from "./driver-bytes.js";
import { largestBlock } from "./files.js";

/**
 * Longest direct read: where buffers are huge pages, one device request. Longer ones bring nothing,
 * shorter ones cost requests.
 */
const maxDirectBytes = hugePageBytes;
/**
 * Sixteen of them in flight keep a virtual disk nearly busy. A read that is queued has its memory
 * already: so many let the disk go on while the host of a virtual machine takes its time over a
 * fresh page. An abort waits for them, a fraction of a second.
 */
const queueDepth = 256;

/**
 * The ring itself, and for each read in it the kernel's request with the list of the pages that it
 * pins.
 */
const ringBytes = 64 * 1024;
const ringReadBytes = 10 * 1024;
/** What the two lanes take: `direct` where there is a direct one. */
export function lanesTake(shape: ReadShape, direct: boolean): DriverBytes {
  const { bytes, ranges, bouncedBytes, threads, maxChunkBytes } = shape;
  if (bytes === 0) return noDriverBytes;
  const blocks = Math.max(ranges, Math.ceil(bytes / Math.min(maxChunkBytes, 2 ** 20)));
  const readers = Math.min(threads, blocks);
  const { minDirectBytes, directThreads, maxBounces, maxBounceBytes } = addon().laneLimits();
  if (!direct || bytes < minDirectBytes) {
    return { ...noDriverBytes, threadBytes: readers * bytesOfThread, ringBytes: readAheadOf(shape, bytes, readers) };
  }
  const reads = Math.min(queueDepth, ranges + Math.ceil(bytes / Math.min(maxChunkBytes, maxDirectBytes)));
  return {
    ...noDriverBytes,
    // One with the ring, and those that read where no ring can be used.
    threadBytes: (readers + 1 + directThreads) * bytesOfThread,
    ringBytes: ringBytes + reads * ringReadBytes + readAheadOf(shape, Math.min(bytes, shape.cachedBytes), readers),
    // Those in flight and one kept.
    bounceBytes: Math.min(bouncedBytes, (maxBounces + 1) * maxBounceBytes),
  };
}

/**
 * The three drivers that read files into memory differ only in which lanes the native side may use.
 */
function readingDriver(name: ReadDriver): TransferDriver {
  return {
    name,
    capabilities: { memory: ["host"], copies: true, registrable: true },
    takes: (shape) => lanesTake(name === "io_uring" ? { ...shape, cachedBytes: 0 } : shape, name !== "pread"),
    forecast: (batch) => lanesForecast(batch, name),
    submit: (batch) => startTransfer(batch, settingsOf(batch, name)),
  };
}

function settingsOf({ threads, maxChunkBytes }: Pick<TransferBatch, "threads" | "maxChunkBytes">, driver: ReadDriver): TransferSettings {
  return { driver, threads, bufferedBlockBytes: maxChunkBytes, directBlockBytes: Math.min(maxChunkBytes, maxDirectBytes), queueDepth };
}

function lanesForecast(batch: ForecastBatch, driver: ReadDriver): readonly ForecastWay[] {
  const settings = settingsOf(batch, driver);
  const blocks = addon().countBlocks(batch.files, batch.pieces, settings);
  const buffered = { path: "buffered", maxReadBytes: settings.bufferedBlockBytes, alignBytes: 1 } as const;
  const rest = `what is no whole block${driver === "auto" ? `, and ranges under ${formatBytes(addon().laneLimits().minDirectBytes)}` : ""}`;
  const ways: readonly ForecastWay[] = [
    { ...buffered, of: driver === "pread" ? "all" : "what the page cache holds", reads: driver === "io_uring" ? 0 : blocks.buffered },
    {
      path: "io_uring",
      of: driver === "io_uring" ? "whole blocks" : "whole blocks that it does not hold; by threads where io_uring is refused",
      reads: driver === "pread" ? 0 : blocks.direct,
      maxReadBytes: settings.directBlockBytes,
      alignBytes: largestBlock(batch),
    },
    { ...buffered, of: rest, reads: driver === "pread" ? 0 : blocks.rest },
  ];
  return ways.filter(({ reads }) => reads > 0);
}

function startTransfer(batch: TransferBatch, settings: TransferSettings): Transfer {
  const done = deferred<TransferSummary>();
  const settled = deferred<void>();
  const native = callNative(() =>
    addon().startTransfer(
      batch.arena.native,
      batch.files,
      batch.pieces,
      settings,
      (failure, summary) => {
        if (summary === null || summary === undefined) done.reject(fromNative(failure));
        else done.resolve(summary);
      },
      () => settled.resolve(),
    ),
  );
  return {
    done: done.promise,
    settled: settled.promise,
    progressBytes: () => native.progressBytes(),
    abort: () => native.abort(),
  };
}

/** Buffered reads on several threads: the reference, which works wherever files can be read. */
export const preadDriver = readingDriver("pread");
/**
 * Direct reads through io_uring, straight into place. Refusals of io_uring or O_DIRECT are errors.
 */
export const ioUringDriver = readingDriver("io_uring");
/**
 * Cached parts buffered, the rest direct, both at once; falls back where the machine refuses, and
 * says so in the summary.
 */
export const autoDriver = readingDriver("auto");
