import { readEnv } from "../../envs.js";
import { errorOf, ModelExpressError } from "../../errors.js";
import { publish } from "../../events.js";
import type { NativeNixl } from "../../native/addon.js";
import { awaitNative } from "../../native/failure.js";
import { addon } from "../../native/load.js";
import { isAbsent, type LibraryPlace, type LibraryTried, libraryVersion, pythonPlaces, usualPlaces, whyNowhere } from "./library-paths.js";
import { nativeUcxSettings, settledUcxSettings } from "./ucx-settings.js";

/** NIXL's library, found and loaded. */
export interface NixlApi {
  /** File it was loaded from. */
  readonly path: string;
  /** As its Python package says; undefined where it does not come from one. */
  readonly version: string | undefined;
  /** What was tried before. */
  readonly tried: readonly LibraryTried[];
  /** @internal */
  readonly native: NativeNixl;
}

export interface NixlApiOptions {
  /**
   * Path of `libnixl_capi.so`. Default: MX_NIXL_LIBRARY, else the loader's path, NVIDIA's usual
   * places, python3's site-packages.
   */
  readonly library?: string;
}

const loaded = new Map<string, Promise<NixlApi>>();

/**
 * Finds NIXL's library and loads it, once per process and place; it is never unloaded. Reads
 * MX_NIXL_LIBRARY.
 * @throws ERR_NIXL_NOT_FOUND with every place tried in `tried`; of a file that was named and is
 *   there ERR_NIXL_LOAD, ERR_NIXL_SYMBOLS, ERR_NIXL_STUB
 */
export function loadNixl(options: NixlApiOptions = {}): Promise<NixlApi> {
  const library = options.library ?? readEnv("MX_NIXL_LIBRARY");
  const key = library ?? "";
  let api = loaded.get(key);
  if (api === undefined) {
    api = find(library, options.library === undefined ? "MX_NIXL_LIBRARY" : "the option library");
    loaded.set(key, api);
    // It may be installed before the next attempt.
    api.catch(() => loaded.delete(key));
  }
  return api;
}

async function find(library: string | undefined, from: string): Promise<NixlApi> {
  const tried: LibraryTried[] = [];
  const api =
    library === undefined
      ? ((await firstOf(usualPlaces(), tried)) ?? (await firstOf(await pythonPlaces(), tried)))
      : await named({ path: library, from }, tried);
  if (api !== undefined) {
    publish({ event: "nixl.loaded", path: api.path, version: api.version ?? null });
    for (const { setting, state, meaning } of settledUcxSettings(api.native)) {
      publish({ event: "nixl.ucx-setting", variable: setting.variable, state, meaning });
    }
    return api;
  }
  const message = `NIXL is not available (\`pip install nixl-cu12\` or nixl-cu13, or set MX_NIXL_LIBRARY): ${whyNowhere(tried)}`;
  throw errorOf("ERR_NIXL_NOT_FOUND", message, { facts: { tried } });
}

/** The library that somebody named: what is there and cannot be used is an error of its own. */
async function named(place: LibraryPlace, tried: LibraryTried[]): Promise<NixlApi | undefined> {
  try {
    return await load(place, tried);
  } catch (thrown) {
    const why = thrown instanceof Error ? thrown.message : String(thrown);
    tried.push({ ...place, why });
    if (isAbsent(why) || !(thrown instanceof ModelExpressError)) return undefined;
    const message = `the library that ${place.from} names is not a NIXL that can be used: ${why}`;
    throw errorOf(thrown.code, message, { facts: { file: place.path, tried }, cause: thrown });
  }
}

async function firstOf(places: readonly LibraryPlace[] | LibraryTried, tried: LibraryTried[]): Promise<NixlApi | undefined> {
  if ("why" in places) {
    tried.push(places);
    return undefined;
  }
  for (const place of places) {
    try {
      return await load(place, tried);
    } catch (thrown) {
      tried.push({ ...place, why: thrown instanceof Error ? thrown.message : String(thrown) });
    }
  }
  return undefined;
}

async function load({ path }: LibraryPlace, tried: readonly LibraryTried[]): Promise<NixlApi> {
  const native = await awaitNative(() => addon().loadNixl(path, nativeUcxSettings));
  return Object.freeze({ path: native.path, version: libraryVersion(native.path), tried: Object.freeze([...tried]), native });
}
