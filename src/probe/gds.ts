import { existsSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { cudaFacts } from "../arena/cuda-backend.js";
import { ModelExpressError } from "../errors.js";
import { publish } from "../events.js";
import { addon } from "../native/load.js";
import { cufileNames } from "../transfer/gds/available.js";
import { cufileConfiguration } from "../transfer/gds/cufile-configuration.js";
import { loadNixl, type NixlApiOptions } from "../transfer/nixl/api.js";
import { formatBytes } from "../units.js";
import { type Finding, found, missing, unknown } from "./finding.js";
import { type ReadText, readText } from "./read-text.js";

/**
 * Whether loads straight to a GPU are possible here: NIXL, the CUDA driver and its devices, the kernel module `nvidia_fs`, cuFile and its
 * configuration. Loads the libraries it finds. Never throws. A file system can refuse all the same, which is seen when a file is registered.
 */
export function probeGds(options: NixlApiOptions = {}): Promise<readonly Finding[]> {
  return gdsFindings(options, readText, process.env);
}

/** @internal */
export async function gdsFindings(options: NixlApiOptions, read: ReadText, environment: NodeJS.ProcessEnv): Promise<readonly Finding[]> {
  const findings = [
    await nixlFinding(options),
    await cudaFinding(),
    nvidiaFsFinding(read),
    cufileFinding(),
    configurationFinding(environment, read),
  ];
  for (const { name, found: isFound, why, remedy } of findings) {
    if (isFound === false) publish({ event: "probe.reason", name, why, remedy });
  }
  return Object.freeze(findings);
}

async function nixlFinding(options: NixlApiOptions): Promise<Finding> {
  const name = "nixl";
  try {
    const { path, version } = await loadNixl(options);
    const plugins = pluginsBeside(path);
    const shown = plugins.length === 0 ? "no plugins beside it" : `plugins ${plugins.join(", ")}`;
    return found(name, `${path}, version ${version ?? "unknown"}; ${shown}`, {
      path,
      version: version ?? null,
      plugins: plugins.join(" "),
    });
  } catch (thrown) {
    return missing(name, messageOf(thrown), "pip install nixl-cu12 (or nixl-cu13), or set MX_NIXL_LIBRARY.");
  }
}

/** Plugins that NIXL finds, by their files; whether one can be loaded is seen when an agent is made. */
function pluginsBeside(library: string): string[] {
  const folder = process.env.NIXL_PLUGIN_DIR || join(dirname(library), "plugins");
  if (!existsSync(folder)) return [];
  const names = readdirSync(folder).map((file) => /^libplugin_(\w+)\.so$/.exec(file)?.[1]);
  return names.filter((name) => name !== undefined).sort();
}

async function cudaFinding(): Promise<Finding> {
  const name = "cuda";
  try {
    const { library, driverVersion, devices } = await cudaFacts();
    const facts = { library, driverVersion, devices: devices.length };
    if (devices.length === 0) return missing(name, `${library} sees no device`, "Check CUDA_VISIBLE_DEVICES and the container.", facts);
    const list = devices.map((device, at) => `cuda:${at} ${device.name} (${formatBytes(device.totalBytes)})`).join(", ");
    return found(name, `${library}, driver for CUDA ${driverVersion}: ${list}`, facts);
  } catch (thrown) {
    return missing(name, messageOf(thrown), "Install NVIDIA's driver, or give the container its devices.");
  }
}

function nvidiaFsFinding(read: ReadText): Finding {
  const name = "nvidia_fs";
  const modules = read("/proc/modules");
  if (modules === undefined) return unknown(name, "/proc/modules cannot be read", "Look at it outside of the container.");
  if (/^nvidia_fs /m.test(modules)) return found(name, "the kernel module is loaded");
  const remedy = "Load it (modprobe nvidia-fs); without it cuFile copies in compatibility mode where its configuration allows that.";
  return missing(name, "the kernel module is not loaded", remedy);
}

function cufileFinding(): Finding {
  const name = "cufile";
  const refusals: string[] = [];
  for (const library of cufileNames) {
    const why = addon().whyLibraryNotLoadable(library);
    if (why === "") return found(name, `${library} can be loaded`, { library });
    refusals.push(why);
  }
  return missing(name, refusals.join("; "), "Install cuFile (package libcufile of the CUDA toolkit).");
}

function configurationFinding(environment: NodeJS.ProcessEnv, read: ReadText): Finding {
  const name = "cufile-configuration";
  const { path, found: isFound, limitBytes, compatibilityMode } = cufileConfiguration(environment, read);
  if (!isFound) return unknown(name, `${path} is not there: cuFile's own defaults count`);
  const limit = limitBytes === undefined ? "its default of registered bytes" : `at most ${formatBytes(limitBytes)} registered`;
  const compatibility =
    compatibilityMode === undefined
      ? "compatibility mode by default"
      : `compatibility mode ${compatibilityMode ? "allowed" : "not allowed"}`;
  return found(name, `${path}: ${limit}, ${compatibility}`, {
    path,
    limitBytes: limitBytes ?? null,
    compatibilityMode: compatibilityMode ?? null,
  });
}

function messageOf(thrown: unknown): string {
  if (thrown instanceof ModelExpressError) return thrown.message;
  return thrown instanceof Error ? thrown.message : String(thrown);
}
