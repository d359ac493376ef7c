/** What is read, as far as it decides how much memory a driver takes beside the tensors. */
export interface ReadShape {
  readonly bytes: number;
  /** Contiguous ranges of files. */
  readonly ranges: number;
  /**
   * At most so many bytes cannot be read directly to their place: they go through bounce buffers.
   */
  readonly bouncedBytes: number;
  /** So many bytes are read through the page cache even by drivers that would read directly. */
  readonly cachedBytes: number;
  /** How far the kernel reads ahead of one thread. */
  readonly readAheadBytes: number;
  readonly threads: number;
  readonly maxChunkBytes: number;
  readonly memory: "host" | "device";
}

/** Memory of the host that a driver takes at most while it reads, in bytes. */
export interface DriverBytes {
  /** Stacks of its threads, in user space and in the kernel, and what malloc keeps for each. */
  readonly threadBytes: number;
  /**
   * Reads in flight: the ring, and what the kernel holds for each; of a mapped file and of reads
   * through the page cache the pages that are read ahead.
   */
  readonly ringBytes: number;
  /** Buffers of direct reads whose target is not aligned. */
  readonly bounceBytes: number;
  /** Slots that are pinned for copies to a device. */
  readonly pinnedBytes: number;
  /** What NIXL and its plugin take when they are loaded. */
  readonly libraryBytes: number;
}

export const noDriverBytes: DriverBytes = Object.freeze({
  threadBytes: 0,
  ringBytes: 0,
  bounceBytes: 0,
  pinnedBytes: 0,
  libraryBytes: 0,
});

/**
 * A stack of 16 KiB in the kernel; of the one in user space, and of malloc's arena for the thread,
 * some pages are touched.
 */
export const bytesOfThread = 128 * 1024;

/**
 * What the kernel reads ahead of so many threads, and cannot drop meanwhile: one stretch for each,
 * and two that are begun behind them.
 */
export function readAheadOf({ readAheadBytes }: ReadShape, bytes: number, threads: number): number {
  return Math.min(bytes, (2 + threads) * readAheadBytes);
}

/** Of two drivers that do not read at one time. */
export function largerOf(one: DriverBytes, other: DriverBytes): DriverBytes {
  return {
    threadBytes: Math.max(one.threadBytes, other.threadBytes),
    ringBytes: Math.max(one.ringBytes, other.ringBytes),
    bounceBytes: Math.max(one.bounceBytes, other.bounceBytes),
    pinnedBytes: Math.max(one.pinnedBytes, other.pinnedBytes),
    libraryBytes: Math.max(one.libraryBytes, other.libraryBytes),
  };
}

/** Of so many batches at one time. */
export function timesOver(bytes: DriverBytes, batches: number): DriverBytes {
  return {
    threadBytes: batches * bytes.threadBytes,
    ringBytes: batches * bytes.ringBytes,
    bounceBytes: batches * bytes.bounceBytes,
    pinnedBytes: batches * bytes.pinnedBytes,
    libraryBytes: bytes.libraryBytes,
  };
}
