import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { basename } from "node:path";
import { readEnv } from "../envs.js";
import { errorOf, type ModelExpressError } from "../errors.js";
import type * as declared from "./addon.js";
import { addonPath, bundleFile, platformName, platformPackage } from "./addon-path.js";

/**
 * Version of the addon that this JavaScript belongs to; the build keeps it equal to package.json.
 */
export const addonVersion = "0.1.0";

/** Node-API level that the addon is built against. */
const nodeApiLevel = 9;

export type Addon = typeof declared;

let loaded: Addon | undefined;

/**
 * The native addon, loaded at the first call.
 * @throws ERR_NATIVE_UNSUPPORTED_PLATFORM, ERR_NATIVE_NODE_API, ERR_NATIVE_MISSING,
 *   ERR_NATIVE_BUNDLED, ERR_NATIVE_LOAD, ERR_NATIVE_VERSION
 */
export function addon(): Addon {
  loaded ??= loadAddon();
  return loaded;
}

function loadAddon(): Addon {
  const platform = platformName();
  if (process.platform !== "linux" || !["x64", "arm64"].includes(process.arch)) {
    throw errorOf("ERR_NATIVE_UNSUPPORTED_PLATFORM", `modelexpress-client runs on Linux on x64 and arm64, not on ${platform}`);
  }
  const level = Number(process.versions.napi ?? 0);
  if (level < nodeApiLevel) {
    throw errorOf(
      "ERR_NATIVE_NODE_API",
      `Node ${process.version} offers Node-API ${level}, the addon needs ${nodeApiLevel}: use Node 20.3 or newer`,
    );
  }
  const path = addonPath();
  if (!existsSync(path)) throw missing(path, platform);
  let found: Addon;
  try {
    found = createRequire(path)(path) as Addon;
  } catch (cause) {
    const words = cause instanceof Error ? cause.message : String(cause);
    throw errorOf("ERR_NATIVE_LOAD", `the native addon at ${path} cannot be loaded on ${platform}: ${words}`, {
      facts: { file: path, platform },
      cause,
    });
  }
  if (found.version() !== addonVersion) {
    throw errorOf(
      "ERR_NATIVE_VERSION",
      `the native addon at ${path} is version ${found.version()}, this package is ${addonVersion}: build again`,
      {
        facts: { file: path },
      },
    );
  }
  return found;
}

function missing(path: string, platform: string): ModelExpressError {
  const wanted = platformPackage(platform);
  const facts = { file: path, platform, package: wanted };
  if (readEnv("MX_NATIVE_ADDON") !== undefined) {
    return errorOf("ERR_NATIVE_MISSING", `MX_NATIVE_ADDON names ${path}, and there is no such file`, { facts });
  }
  const bundle = bundleFile();
  if (bundle !== undefined) {
    const message =
      `modelexpress-client is in the bundle ${bundle}, which cannot hold its native addon: keep the package external to the bundle, install ` +
      `${wanted} where the bundle runs, copy ${basename(path)} beside the bundle, or name its path in MX_NATIVE_ADDON`;
    return errorOf("ERR_NATIVE_BUNDLED", message, { facts: { ...facts, bundle } });
  }
  const message =
    `the native addon for ${platform} is not installed: \`npm install ${wanted}@${addonVersion}\` brings it (npm leaves it out with ` +
    "--omit=optional, and where package-lock.json knows other platforms only); in a clone, `npm run build` makes it";
  return errorOf("ERR_NATIVE_MISSING", message, { facts });
}
