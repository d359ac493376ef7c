import { errorOf } from "../errors.js";
import { isPowerOfTwo } from "../units.js";
import type { VmmBackend } from "./vmm-backend.js";

/**
 * Address space that an arena reserves when nothing else is asked: 16 TiB. It costs nothing until
 * memory is mapped into it.
 */
export const DEFAULT_ARENA_BYTES = 2 ** 44;

const methods = ["allocationGranularity", "reserve", "allocate", "deallocate", "releaseReserve"] as const;
const memoryKinds: readonly unknown[] = [undefined, "host", "device", "none"];

/** @throws ERR_ARENA_BACKEND_REQUIRED */
export function requireBackend(backend: VmmBackend | undefined): VmmBackend {
  if (typeof backend !== "object" || backend === null) {
    throw errorOf(
      "ERR_ARENA_BACKEND_REQUIRED",
      "new VmmArena({ backend }): a backend is required; pass hostBackend() or cudaBackend({ device }), or new StubBackend() in tests",
      {
        facts: { option: "backend" },
      },
    );
  }
  const missing = methods.filter((method) => typeof backend[method] !== "function");
  if (missing.length > 0 || !memoryKinds.includes(backend.memory)) {
    const fault =
      missing.length > 0 ? `lacks ${missing.join(", ")}` : `has memory ${JSON.stringify(backend.memory)}, not "host", "device" or "none"`;
    throw errorOf("ERR_ARENA_BACKEND_REQUIRED", `new VmmArena({ backend }): the backend ${fault}`, { facts: { option: "backend" } });
  }
  return backend;
}

/** @throws ERR_ARENA_GRANULARITY when it is no positive power of two */
export function requireGranularity(granularity: number): void {
  if (isPowerOfTwo(granularity)) return;
  const message = `backend.allocationGranularity() must be a positive power of two in bytes, it is ${String(granularity)}`;
  throw errorOf("ERR_ARENA_GRANULARITY", message, { facts: { granularity } });
}

/**
 * `totalBytes` rounded up to the granularity.
 * @throws ERR_ARENA_SIZE
 */
export function reserveBytes(totalBytes: number, granularity: number): number {
  requireSize("totalBytes", totalBytes);
  const rounded = Math.ceil(totalBytes / granularity) * granularity;
  requireSize("totalBytes, rounded up to the granularity,", rounded);
  return rounded;
}

/** @throws ERR_ARENA_SIZE when it is no positive safe integer */
export function requireSize(what: string, bytes: number): void {
  if (Number.isSafeInteger(bytes) && bytes > 0) return;
  throw errorOf("ERR_ARENA_SIZE", `${what} must be a positive safe integer in bytes, it is ${String(bytes)}`, { facts: { length: bytes } });
}
