import { keptPageBytes } from "../arena/kept-pages.js";
import type { NativeClaim } from "../native/addon.js";
import { addon } from "../native/load.js";
import { type AvailableMemory, readAvailableMemory } from "../probe/memory.js";
import { formatBytes } from "../units.js";

/** Smaller loads are over before it would matter how far they are. */
const followedBytes = 64 * 2 ** 20;
const followIntervalMs = 100;

/** Claims of this thread. */
const live = new Set<MemoryClaim>();

/**
 * Memory of the host that a load in flight has yet to take. It shows in no counter of the kernel,
 * so the check of another load, on whatever thread of the process, takes it off. Belongs to the
 * thread that made it.
 */
export class MemoryClaim {
  /** What other loads claimed when this claim was made. */
  readonly claimedBefore: number;
  readonly #bytes: number;
  readonly #native: NativeClaim;
  #arrivedBytes: () => number = () => 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(bytes: number) {
    this.#bytes = bytes;
    this.#native = addon().claimMemory(bytes);
    this.claimedBefore = this.#native.claimedBefore();
    live.add(this);
  }

  /**
   * What has arrived is memory that the kernel counts; told to other threads ten times a second.
   */
  follow(arrivedBytes: () => number): void {
    if (this.#bytes < followedBytes) return;
    this.#arrivedBytes = arrivedBytes;
    this.#timer = setInterval(() => this.refresh(), followIntervalMs).unref();
  }

  refresh(): void {
    this.#native.change(Math.max(0, this.#bytes - this.#arrivedBytes()));
  }

  /** Ends the claim. A second call does nothing. */
  release(): void {
    clearInterval(this.#timer);
    live.delete(this);
    this.#native.change(0);
  }
}

/**
 * Memory of the host that a load can take now: what the kernel says, and kept pages, less what
 * loads in flight have yet to take.
 */
export function availableNow(): AvailableMemory {
  for (const claim of live) claim.refresh();
  return availableBeside(addon().claimedBytes());
}

/** The same beside other loads that claimed so much. */
export function availableBeside(claimedBytes: number): AvailableMemory {
  const { bytes, limitedBy } = readAvailableMemory();
  if (bytes === null) return { bytes, limitedBy };
  const withKept = bytes + keptPageBytes();
  if (claimedBytes <= 0) return { bytes: withKept, limitedBy };
  const less = `${limitedBy}, less ${formatBytes(claimedBytes)} that other loads have yet to take`;
  return { bytes: Math.max(0, withKept - claimedBytes), limitedBy: less };
}
