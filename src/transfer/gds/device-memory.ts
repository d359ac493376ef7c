import { VmmArena } from "../../arena/arena.js";
import { cudaBackend, cudaDeviceNumber } from "../../arena/cuda-backend.js";
import { hostBackend } from "../../arena/host-backend.js";
import type { VmmBackend } from "../../arena/vmm-backend.js";
import { errorOf } from "../../errors.js";
import { memoryOf } from "../nixl/agent.js";
import { type BatchMemory, releaseMemory } from "./batch.js";

/**
 * One allocation for a batch: in the arena given, else in one of its own.
 * @throws ERR_OPTION_CONFLICT when the arena is on another device; ERR_ARENA_EXHAUSTED, ERR_ARENA_OUT_OF_MEMORY, ...
 */
export function allocateOn(device: string, bytes: number, into: VmmArena | undefined): BatchMemory {
  if (into !== undefined) requireDevice(device, into);
  const arena = into ?? new VmmArena({ backend: backendOf(device), totalBytes: bytes });
  try {
    return { arena, address: arena.malloc(bytes), own: into === undefined };
  } catch (error) {
    if (into === undefined) releaseMemory({ arena, address: 0n, own: true });
    throw error;
  }
}

function backendOf(device: string): VmmBackend {
  const number = cudaDeviceNumber(device);
  return number === undefined ? hostBackend() : cudaBackend({ device: number });
}

function requireDevice(device: string, arena: VmmArena): void {
  memoryOf(arena);
  const found = arena.memory === "host" ? "host" : arena.device;
  if (found === device) return;
  throw errorOf("ERR_OPTION_CONFLICT", `the arena to load into is on ${found}, the manager reads to ${device}`, {
    facts: { option: "into", device: found },
  });
}
