import { requireInteger, requireKnown } from "../arguments.js";
import type { NativeBackend } from "../native/addon.js";
import { awaitNative } from "../native/failure.js";
import { addon } from "../native/load.js";
import { AddonBackend } from "./native-backend.js";
import type { VmmBackend } from "./vmm-backend.js";

/** How many pages of closed models a process keeps for its next loads, and how long. */
export interface KeepPagesOptions {
  /**
   * Most bytes kept by the process, all its threads together; above it the oldest go. The limit of
   * the model that was closed last counts.
   */
  readonly maxBytes: number;
  /**
   * Milliseconds until they go when no load takes them. Default 60,000. They keep no process alive.
   */
  readonly idleMs?: number | undefined;
}

/** Host memory of one load whose pages can be kept. */
export interface Keeper {
  readonly backend: VmmBackend;
  /**
   * Says that all of it is filled, so that its pages are worth keeping when they are given back.
   */
  keep(): void;
  /** Bytes that came out of kept pages. */
  takenBytes(): number;
}

const defaultIdleMs = 60_000;
/** Timers of this length are still exact. */
const maxIdleMs = 2 ** 31 - 1;

/** @throws ERR_OPTION_INVALID, ERR_OPTION_UNKNOWN */
export function requireKeepPages(option: string, value: KeepPagesOptions): Required<KeepPagesOptions> {
  requireKnown(option, value, ["maxBytes", "idleMs"]);
  return {
    maxBytes: requireInteger(`${option}.maxBytes`, value.maxBytes, { min: 0 }),
    idleMs: requireInteger(`${option}.idleMs`, value.idleMs ?? defaultIdleMs, { min: 0, max: maxIdleMs }),
  };
}

export function openKeeper({ maxBytes, idleMs = defaultIdleMs }: KeepPagesOptions): Keeper {
  const native: NativeBackend = addon().openKeepingBackend(maxBytes, idleMs);
  const backend = new AddonBackend("host", "host", () => native);
  return { backend, keep: () => native.keepPages(), takenBytes: () => native.takenPageBytes() };
}

/** Bytes of pages that the process keeps now for loads with `keepPages`. */
export function keptPageBytes(): number {
  return addon().keptPageBytes();
}

/**
 * Gives kept pages back, the oldest first: all of them, or `bytes` at least where there are as
 * many. Resolves to how many bytes went, once the system has them.
 * @throws ERR_OPTION_INVALID
 */
export async function releaseKeptPages(bytes = Number.MAX_SAFE_INTEGER): Promise<number> {
  requireInteger("bytes", bytes, { min: 0 });
  return await awaitNative(() => addon().releaseKeptPages(bytes));
}
