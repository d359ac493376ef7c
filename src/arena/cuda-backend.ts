import { readEnv } from "../envs.js";
import { errorOf } from "../errors.js";
import { publish } from "../events.js";
import type { CudaFacts } from "../native/addon.js";
import { awaitNative } from "../native/failure.js";
import { addon } from "../native/load.js";
import { AddonBackend } from "./native-backend.js";
import type { VmmBackend } from "./vmm-backend.js";

export interface CudaLibraryOptions {
  /**
   * Path of the CUDA driver library. Default: `MX_CUDA_LIBRARY`, else `libcuda.so.1` and then
   * `libcuda.so` as the loader finds them.
   */
  readonly library?: string;
}

export interface CudaBackendOptions extends CudaLibraryOptions {
  /**
   * Number of the device in the driver's order, from 0, or `cuda:N`. `CUDA_VISIBLE_DEVICES` decides
   * which devices are counted.
   */
  readonly device: number | `cuda:${number}`;
}

/**
 * Memory of a CUDA device, by the driver's virtual memory management: one reserved range of
 * addresses, and for every allocation physical memory of its own, mapped whole, readable and
 * writable by the device, exportable, and reachable by network cards and storage (GPUDirect RDMA)
 * where the device allows it.
 *
 * The driver is looked up, and the device's primary context retained, when the first arena is made
 * over it; that may take a second. It is released when the backend and its arenas are collected, or
 * the process ends. Arenas over it work natively: `malloc` and `free` run on whatever thread calls,
 * and leave the context that is current there as it was. Freeing waits for no stream: whoever frees
 * has waited for the work that uses the memory.
 *
 * Handles that other hosts of an NVLink fabric can be given are asked for at the first allocation.
 * Where this host has none, allocations get file-descriptor handles from then on, and the event
 * `cuda.fabric-unavailable` says so once.
 *
 * Errors, with the facts `operation` and `status` where a call of the driver failed:
 * ERR_CUDA_LIBRARY, ERR_CUDA_SYMBOLS, ERR_CUDA_NOT_INITIALIZED, ERR_CUDA_DEVICE,
 * ERR_CUDA_NO_CONTEXT, ERR_CUDA_RESERVE_REFUSED, ERR_CUDA_OUT_OF_MEMORY, ERR_CUDA_ALLOCATE,
 * ERR_CUDA_RELEASE, ERR_CUDA_CALL.
 * @throws ERR_OPTION_INVALID when `device` is neither; ERR_ENV_INVALID
 */
export function cudaBackend(options: CudaBackendOptions): VmmBackend {
  const ordinal = deviceNumber(options?.device);
  const library = libraryOf(options);
  const device = `cuda:${ordinal}`;
  return new AddonBackend("device", device, () => addon().openCudaBackend(ordinal, library, noticeOf(device)));
}

/**
 * @internal The same, with the driver looked up and the context made already, on a native thread.
 */
export async function openCudaBackend(device: `cuda:${number}`): Promise<VmmBackend> {
  const ordinal = deviceNumber(device);
  const native = await awaitNative(() => addon().openCudaBackendInBackground(ordinal, libraryOf({}), noticeOf(device)));
  return new AddonBackend("device", device, () => native);
}

function noticeOf(device: string) {
  return (handleType: string, reason: string) => publish({ event: "cuda.fabric-unavailable", device, handleType, reason });
}

/**
 * What the CUDA driver says of itself and its devices, which are in its order. Makes no context.
 * @throws ERR_CUDA_LIBRARY, ERR_CUDA_SYMBOLS, ERR_CUDA_NOT_INITIALIZED, ERR_CUDA_CALL
 */
export function cudaFacts(options: CudaLibraryOptions = {}): Promise<CudaFacts> {
  return awaitNative(async () => addon().cudaFacts(libraryOf(options)));
}

/**
 * The device whose context is current on the calling thread, because other native code of this
 * process made it so; `cuda:0` where there is none. Loads and initialises nothing.
 */
export function currentCudaDevice(options: CudaLibraryOptions = {}): `cuda:${number}` {
  return `cuda:${addon().currentCudaDevice(libraryOf(options)) ?? 0}`;
}

/** Number of the device in `cuda:N`; undefined for any other text. */
export function cudaDeviceNumber(device: string): number | undefined {
  return /^cuda:(0|[1-9]\d{0,3})$/.test(device) ? Number(device.slice("cuda:".length)) : undefined;
}

function deviceNumber(device: unknown): number {
  const number = typeof device === "string" ? cudaDeviceNumber(device) : device;
  if (typeof number === "number" && Number.isInteger(number) && number >= 0 && number < 10_000) return number;
  const shown = typeof device === "string" ? JSON.stringify(device) : String(device);
  throw errorOf("ERR_OPTION_INVALID", `cudaBackend({ device }): device must be the number of a CUDA device or "cuda:N", it is ${shown}`, {
    facts: { option: "device" },
  });
}

function libraryOf(options: CudaLibraryOptions): string | null {
  return options.library ?? readEnv("MX_CUDA_LIBRARY") ?? null;
}
