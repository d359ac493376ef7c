import { optionInvalid } from "../arguments.js";
import type { VmmArena } from "./arena.js";
import { cudaDeviceNumber } from "./cuda-backend.js";

/** Where memory is: the host's, or that of a CUDA device by its number in the driver's order. */
export type DeviceName = "host" | `cuda:${number}`;

/**
 * Gives back `value` when it names a place for tensors; whether the device is there is seen when
 * memory is allocated.
 * @throws ERR_OPTION_INVALID naming the option and the value
 */
export function requireDeviceName(option: string, value: unknown): DeviceName {
  if (isDeviceName(value)) return value;
  throw optionInvalid(option, '"host" or "cuda:N", N from 0 to 9999', value);
}

/** What drivers are chosen by. */
export function memoryKindOf(device: DeviceName): "host" | "device" {
  return device === "host" ? "host" : "device";
}

/** The place of an arena's memory; undefined where nothing can be loaded into it. */
export function deviceOfArena(arena: VmmArena): DeviceName | undefined {
  if (arena.memory === "host") return "host";
  return arena.memory === "device" && isDeviceName(arena.device) && arena.device !== "host" ? arena.device : undefined;
}

function isDeviceName(value: unknown): value is DeviceName {
  return value === "host" || (typeof value === "string" && cudaDeviceNumber(value) !== undefined);
}
