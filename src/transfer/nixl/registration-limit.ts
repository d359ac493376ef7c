import { cufileConfiguration } from "../gds/cufile-configuration.js";
import { pluginTraits } from "./plugins.js";
import { windowsInFlight } from "./windows.js";

/**
 * Bytes of memory that the plugin may have registered at one time; undefined where nobody set a
 * limit.
 */
export function registrationLimit(plugin: string): number | undefined {
  return pluginTraits(plugin).cufile ? cufileConfiguration().limitBytes : undefined;
}

/**
 * Bytes of a window, at least. A window costs some round trips to the agent, milliseconds where
 * every processor is reading: shorter windows leave reading threads idle meanwhile, longer ones let
 * the end of an abort wait.
 */
export const minWindowBytes = 256 * 2 ** 20;

/**
 * Bytes of a window: as wanted, but not below the floor, and those in flight together within the
 * limit, which goes first.
 */
export function windowBytesWithin(limitBytes: number | undefined, wanted: number): number {
  const bytes = Math.max(wanted, minWindowBytes);
  return limitBytes === undefined ? bytes : Math.max(1, Math.min(bytes, Math.floor(limitBytes / windowsInFlight)));
}
