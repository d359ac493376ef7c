import type { NativeNixl, NativeUcxSetting, UcxSettingState } from "../../native/addon.js";

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

/** A setting, and what became of it in this process. */
export interface SettledUcxSetting {
  readonly setting: UcxSetting;
  readonly state: UcxSettingState;
  /** The same in words, with what to do about it. */
  readonly meaning: string;
}

/** What became of each setting when NIXL was loaded. */
export function settledUcxSettings({ ucxSettings: states }: NativeNixl): SettledUcxSetting[] {
  return ucxSettings.map((setting, index) => {
    const state = states[index] as UcxSettingState;
    return { setting, state, meaning: meaningOf(setting, state) };
  });
}

function meaningOf({ variable, value, others, why }: UcxSetting, state: UcxSettingState): string {
  if (state === "set") return `${variable}=${value} was set for this process and its children`;
  if (state === "user-set") return `${[variable, ...others].join(" or ")} was set before, and is left as it is`;
  const reason = state === "refused" ? "there was no memory to set it" : "UCX was loaded before this package could set it";
  return `${variable} is not set: ${reason}. ${why} Set ${variable}=${value} where the process is started.`;
}
