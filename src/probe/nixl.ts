import { existsSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { loadNixl, type NixlApiOptions } from "../transfer/nixl/api.js";
import { type LibraryTried, whyNowhere } from "../transfer/nixl/library-paths.js";
import { settledUcxSettings } from "../transfer/nixl/ucx-settings.js";
import { type Finding, found, missing } from "./finding.js";

const name = "nixl";
const remedy = "pip install nixl-cu12 (or nixl-cu13), or set MX_NIXL_LIBRARY to the path of libnixl_capi.so.";

/** NIXL's library: where, which version, which plugins lie beside it. Loads it. */
export async function nixlFinding(options: NixlApiOptions, environment: NodeJS.ProcessEnv): Promise<Finding> {
  try {
    const { path, version, native } = await loadNixl(options);
    const plugins = pluginsBeside(path, environment);
    const shown = plugins.length === 0 ? "no plugins beside it" : `plugins ${plugins.join(", ")}`;
    const states = settledUcxSettings(native);
    const setHere = states.filter(({ state }) => state === "set").map(({ setting: { variable, value } }) => `${variable}=${value}`);
    const settings = [
      ...(setHere.length === 0 ? [] : [`set so that UCX does no harm: ${setHere.join(", ")}`]),
      ...states.filter(({ state }) => state !== "set").map(({ meaning }) => meaning),
    ].join("; ");
    return found(name, `${path}, version ${version ?? "unknown"}; ${shown}; ${settings}`, {
      path,
      version: version ?? null,
      plugins: plugins.join(" "),
      ...Object.fromEntries(states.map(({ setting, state }) => [setting.variable, state])),
    });
  } catch (thrown) {
    const tried = (thrown as { tried?: readonly LibraryTried[] }).tried;
    if (tried === undefined) return missing(name, thrown instanceof Error ? thrown.message : String(thrown), remedy);
    return missing(name, whyNowhere(tried), remedy, { tried: tried.map(({ path }) => path).join(" ") });
  }
}

/**
 * Plugins that NIXL finds, by their files; whether one can be loaded is seen when an agent is made.
 */
function pluginsBeside(library: string, environment: NodeJS.ProcessEnv): string[] {
  const folder = environment.NIXL_PLUGIN_DIR || join(dirname(library), "plugins");
  if (!existsSync(folder)) return [];
  const names = readdirSync(folder).map((file) => /^libplugin_(\w+)\.so$/.exec(file)?.[1]);
  return names.filter((name) => name !== undefined).sort();
}
