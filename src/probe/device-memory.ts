import { cudaFacts } from "../arena/cuda-backend.js";
import type { DeviceName } from "../arena/device-name.js";
import { type AvailableMemory, readAvailableMemory } from "./memory.js";

/**
 * Memory that a load to this place can take: of the host what is there now, of a CUDA device all that it has, for what is free of that is known
 * only to a context, which is not made to ask. An allocation tells the rest.
 * @throws ERR_CUDA_LIBRARY, ERR_CUDA_SYMBOLS, ERR_CUDA_NOT_INITIALIZED, ERR_CUDA_CALL
 */
export async function readMemoryOf(device: DeviceName): Promise<AvailableMemory> {
  if (device === "host") return readAvailableMemory();
  const { devices } = await cudaFacts();
  const totalBytes = devices[Number(device.slice("cuda:".length))]?.totalBytes;
  return Object.freeze({ bytes: totalBytes ?? null, limitedBy: totalBytes === undefined ? "unknown" : `all memory of ${device}` });
}
