import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { errorOf } from "../errors.js";
import type { Addon } from "./addon.js";

/** Version of the addon that this JavaScript belongs to; the build keeps it equal to package.json. */
export const addonVersion = "0.1.0";

/** Node-API level that the addon is built against. */
const nodeApiLevel = 9;

let loaded: Addon | undefined;

/** Where the addon of this platform lies, built or installed. */
export function addonPath(): string {
  return fileURLToPath(new URL(`../../dist/native/modelexpress.${process.platform}-${process.arch}.node`, import.meta.url));
}

/**
 * The native addon, loaded at the first call.
 * @throws ERR_NATIVE_UNSUPPORTED_PLATFORM, ERR_NATIVE_NODE_API, ERR_NATIVE_MISSING, ERR_NATIVE_LOAD, ERR_NATIVE_VERSION
 */
export function addon(): Addon {
  loaded ??= loadAddon();
  return loaded;
}

function loadAddon(): Addon {
  const platform = `${process.platform}-${process.arch}`;
  if (process.platform !== "linux" || !["x64", "arm64"].includes(process.arch)) {
    throw errorOf("ERR_NATIVE_UNSUPPORTED_PLATFORM", `modelexpress-client runs on Linux x64 (arm64 untested), not on ${platform}`);
  }
  const level = Number(process.versions.napi ?? 0);
  if (level < nodeApiLevel) {
    throw errorOf(
      "ERR_NATIVE_NODE_API",
      `Node ${process.version} offers Node-API ${level}, the addon needs ${nodeApiLevel}: use Node 20.3 or newer`,
    );
  }
  const path = addonPath();
  if (!existsSync(path)) {
    throw errorOf("ERR_NATIVE_MISSING", `the native addon for ${platform} is not at ${path}: run \`npm run build\`, or install again`, {
      facts: { file: path },
    });
  }
  let found: Addon;
  try {
    found = createRequire(import.meta.url)(path) as Addon;
  } catch (cause) {
    const words = cause instanceof Error ? cause.message : String(cause);
    throw errorOf("ERR_NATIVE_LOAD", `the native addon at ${path} cannot be loaded: ${words}`, { facts: { file: path }, cause });
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
