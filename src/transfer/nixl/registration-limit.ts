import { cufileConfiguration } from "../gds/cufile-configuration.js";
import { pluginTraits } from "./plugins.js";
import { windowsInFlight } from "./windows.js";

/** Bytes of memory that the plugin may have registered at one time; undefined where nobody set a limit. */
export function registrationLimit(plugin: string): number | undefined {
  return pluginTraits(plugin).cufile ? cufileConfiguration().limitBytes : undefined;
}

/** Bytes of a window: as wanted, but those in flight together within the limit. */
export function windowBytesWithin(limitBytes: number | undefined, wanted: number): number {
  return limitBytes === undefined ? wanted : Math.max(1, Math.min(wanted, Math.floor(limitBytes / windowsInFlight)));
}
