import { publish } from "../../events.js";
import type { NativeUcxSetting } from "../../native/addon.js";

/** A variable that keeps UCX from harming its host process. */
export interface UcxSetting {
  readonly variable: string;
  /** What the package sets it to, before NIXL is first loaded. */
  readonly value: string;
  /** Other variables of the user that settle the same. */
  readonly others: readonly string[];
  /** What UCX does by default. */
  readonly why: string;
}

/**
 * What became of a setting: `set` here, for this process, its children and every UCX loaded later; `user-set`, and left as it is; `loaded-before`:
 * UCX was in the process already, with its default; `refused` by the C library for lack of memory.
 */
export type UcxSettingState = "set" | "user-set" | "loaded-before" | "refused";

/** Every variable that the package sets. */
export const ucxSettings: readonly UcxSetting[] = Object.freeze([
  {
    variable: "UCX_MEM_MMAP_HOOK_MODE",
    value: "none",
    others: ["UCX_MEM_EVENTS"],
    why: "UCX tests its memory hooks when it is loaded, and that test can take the last page of malloc's heap: the process dies later.",
  },
  {
    variable: "UCX_DEBUG_SIGNO",
    value: "0",
    others: [],
    why: "UCX takes over SIGHUP: the process no longer ends on it, and a handler set before no longer runs.",
  },
  {
    variable: "UCX_LOG_FILE",
    value: "stderr",
    others: [],
    why: "UCX logs to stdout, into the output of the host program.",
  },
]);

/** The settings as the native half takes them. */
export const nativeUcxSettings: NativeUcxSetting[] = ucxSettings.map(({ variable, value, others }) => ({
  variable,
  value,
  others: [...others],
}));

/** What became of `setting`, and what to do about it. */
export function ucxSettingMeaning({ variable, value, others, why }: UcxSetting, state: UcxSettingState): string {
  if (state === "set") return `${variable}=${value} was set for this process and its children`;
  if (state === "user-set") return `${[variable, ...others].join(" or ")} was set before, and is left as it is`;
  const reason = state === "refused" ? "there was no memory to set it" : "UCX was loaded before this package could set it";
  return `${variable} is not set: ${reason}. ${why} Set ${variable}=${value} where the process is started.`;
}

/** Tells what became of each setting. */
export function publishUcxSettings(states: readonly UcxSettingState[]): void {
  ucxSettings.forEach((setting, index) => {
    const state = states[index] as UcxSettingState;
    publish({ event: "nixl.ucx-setting", variable: setting.variable, state, meaning: ucxSettingMeaning(setting, state) });
  });
}
