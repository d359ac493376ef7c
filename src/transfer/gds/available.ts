import { publish } from "../../events.js";
import { addon } from "../../native/load.js";
import { type ReadText, readText } from "../../probe/read-text.js";
import { loadNixl, type NixlApiOptions } from "../nixl/api.js";

/** Names under which cuFile is installed: many packages carry the second only. */
export const cufileNames = ["libcufile.so", "libcufile.so.0"];

/**
 * True when NIXL, the kernel module `nvidia_fs` and cuFile's library are all there: what loads by
 * GPUDirect Storage need of the machine. A file system can refuse all the same, which is seen when
 * a file is registered. The answer is published as the event `gds.available`, or as
 * `gds.unavailable` with what is missing.
 */
export async function isGdsAvailable(options: NixlApiOptions = {}): Promise<boolean> {
  const why = await whyGdsUnavailable(options, readText);
  publish(why === undefined ? { event: "gds.available" } : { event: "gds.unavailable", why });
  return why === undefined;
}

/** @internal First thing that is missing; undefined when nothing is. */
export async function whyGdsUnavailable(options: NixlApiOptions, read: ReadText): Promise<string | undefined> {
  // The cheapest first: without the module nothing has to be loaded.
  if (!/^nvidia_fs /m.test(read("/proc/modules") ?? "")) return "the kernel module nvidia_fs is not loaded (/proc/modules)";
  const refusals = cufileNames.map((name) => addon().whyLibraryNotLoadable(name));
  if (!refusals.includes(null)) return `cuFile cannot be loaded: ${refusals.join("; ")}`;
  try {
    await loadNixl(options);
  } catch (thrown) {
    return thrown instanceof Error ? thrown.message : String(thrown);
  }
  return undefined;
}
