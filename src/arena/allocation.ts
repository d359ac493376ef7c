import { VmmArena } from "./arena.js";
import { openCudaBackend } from "./cuda-backend.js";
import type { DeviceName } from "./device-name.js";
import { hostBackend } from "./host-backend.js";
import type { VmmBackend } from "./vmm-backend.js";

/** What is to be allocated, and where. */
export interface AllocationRequest {
  readonly device: DeviceName;
  /** 0 for an arena without an allocation. */
  readonly bytes: number;
  /** Arena to allocate in. Default: one of its own. */
  readonly into?: VmmArena | undefined;
  /** The device's, where it is open already. */
  readonly backend?: VmmBackend | undefined;
}

/** One allocation, and whose its arena is. */
export interface Allocation {
  readonly arena: VmmArena;
  /** First byte; the arena's base where nothing was allocated. */
  readonly address: bigint;
  readonly bytes: number;
  /** True when the arena was made for it, and goes with it. */
  readonly own: boolean;
}

/**
 * Allocates in `into`, or else in an arena of its own that reserves just what is needed. Of a
 * device on native threads: a context takes up to a second, and physical memory some time. On a
 * device one allocation is one physical handle, so one region for a network card.
 * @throws ERR_ARENA_RESERVE_REFUSED, ERR_ARENA_OUT_OF_MEMORY, ERR_ARENA_EXHAUSTED,
 *   ERR_ARENA_CLOSED, ERR_CUDA_LIBRARY, ERR_CUDA_DEVICE, ERR_CUDA_OUT_OF_MEMORY, ...; an arena of
 *   its own is closed then
 */
export async function allocate({ device, bytes, into, backend }: AllocationRequest): Promise<Allocation> {
  const arena = into ?? new VmmArena({ backend: backend ?? (await backendOf(device)), totalBytes: Math.max(bytes, 1) });
  try {
    const address = bytes === 0 ? arena.base : device === "host" ? arena.malloc(bytes) : await arena.mallocInBackground(bytes);
    return { arena, address, bytes, own: into === undefined };
  } catch (error) {
    // The failure that led here goes up; one of the close is published as an event.
    try {
      if (into === undefined) arena.close();
    } catch {}
    throw error;
  }
}

/**
 * Gives an allocation back, with its arena where that is its own. @throws ERR_ARENA_BUSY while
 * something uses it: nothing is given back then
 */
export function release({ arena, address, bytes, own }: Allocation): void {
  if (own) arena.close();
  else if (bytes > 0) arena.free(address);
}

/** As `release`; resolves when the memory is back. */
export async function releaseInBackground({ arena, address, bytes, own }: Allocation): Promise<void> {
  if (own) await arena.closeInBackground();
  else if (bytes > 0) await arena.freeInBackground(address);
}

async function backendOf(device: DeviceName) {
  return device === "host" ? hostBackend() : await openCudaBackend(device);
}
