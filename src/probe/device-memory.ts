import { openCudaBackend } from "../arena/cuda-backend.js";
import type { DeviceName } from "../arena/device-name.js";
import { nativeBackendOf } from "../arena/native-backend.js";
import type { VmmBackend } from "../arena/vmm-backend.js";
import { awaitNative } from "../native/failure.js";
import { type AvailableMemory, readAvailableMemory } from "./memory.js";

/** What a device's memory can be asked of: an arena's native half, or a backend's. */
export interface DeviceMemory {
  freeDeviceBytes(): Promise<number | null>;
}

/** A device that was opened, and the memory of it that nobody has now, whichever process. */
export interface OpenDevice {
  readonly backend: VmmBackend;
  readonly available: AvailableMemory;
}

/**
 * Opens a CUDA device, whose context alone knows what is free.
 * @throws ERR_CUDA_LIBRARY, ERR_CUDA_SYMBOLS, ERR_CUDA_NOT_INITIALIZED, ERR_CUDA_DEVICE,
 *   ERR_CUDA_NO_CONTEXT, ERR_CUDA_CALL
 */
export async function openDevice(device: `cuda:${number}`): Promise<OpenDevice> {
  const backend = await openCudaBackend(device);
  return { backend, available: await freeMemoryOf(device, nativeBackendOf(backend)) };
}

/** @throws ERR_CUDA_NO_CONTEXT, ERR_CUDA_CALL */
export async function freeMemoryOf(device: DeviceName, memory: DeviceMemory | undefined): Promise<AvailableMemory> {
  const bytes = memory === undefined ? null : await awaitNative(() => memory.freeDeviceBytes());
  return bytes === null ? { bytes: null, limitedBy: "unknown" } : { bytes, limitedBy: `free memory of ${device}` };
}

/**
 * Memory that a load to this place can take now.
 * @throws as {@link openDevice}
 */
export async function readMemoryOf(device: DeviceName): Promise<AvailableMemory> {
  return device === "host" ? readAvailableMemory() : (await openDevice(device)).available;
}
