import { currentCudaDevice } from "../../arena/cuda-backend.js";
import { type DeviceName, requireDeviceName } from "../../arena/device-name.js";
import { optionInvalid, requireInteger } from "../../arguments.js";
import { maxChunkKib, maxThreads, maxTimeoutMs, readEnv } from "../../envs.js";
import { errorOf } from "../../errors.js";
import { publish } from "../../events.js";
import { defaultCloseTimeoutMs, type NixlAgent } from "../nixl/agent.js";
import type { NixlApiOptions } from "../nixl/api.js";

export interface GdsOptions extends NixlApiOptions {
  /** Name of the NIXL agent. */
  readonly agentName: string;
  /**
   * Where buffers lie: `cuda:0`, `cuda:1`, ..., or `host`. Default: the device whose CUDA context
   * is current on the thread that makes the manager, because other native code of this process
   * chose it; else `cuda:0`.
   */
  readonly device?: DeviceName;
  /** NIXL plugin that reads. Default `GDS_MT`; on `host` `POSIX`. */
  readonly plugin?: string;
  /**
   * An agent to use, which must have the plugin and stays the caller's to close. Default: one of
   * the manager's own.
   */
  readonly agent?: NixlAgent;
  /** Threads of GDS_MT. Default: MX_GDS_THREADS, else 8. */
  readonly threads?: number;
  /**
   * Longest single read in bytes; above 1 GiB it counts as that, told by the event
   * `option.clamped`. As many as `threads` run at a time. Default: MX_GDS_MAX_CHUNK_KB, else 128
   * MiB.
   */
  readonly maxChunkBytes?: number;
  /** Deadline of one batch in milliseconds. Default: MX_GDS_TIMEOUT, else 120 s. */
  readonly timeoutMs?: number;
  /** How long `shutdown()` waits for reads in flight, in milliseconds. Default 30000. */
  readonly closeTimeoutMs?: number;
  /**
   * What is registered with the plugin: `chunks`, the very bases that are read, window by window,
   * which cuFile reads into without a copy; or `whole`, the batch's memory once. `auto`, the
   * default, is `chunks`.
   */
  readonly registration?: "auto" | "chunks" | "whole";
}

/** Options with every default filled in. */
export interface GdsSettings {
  readonly agentName: string;
  readonly device: DeviceName;
  readonly plugin: string;
  readonly agent: NixlAgent | undefined;
  readonly threads: number;
  readonly maxChunkBytes: number;
  readonly timeoutMs: number;
  readonly closeTimeoutMs: number;
  readonly registration: "chunks" | "whole";
  readonly library: string | undefined;
}

/**
 * Reads the environment, now and not later.
 * @throws ERR_OPTION_INVALID, ERR_OPTION_UNKNOWN, ERR_ENV_INVALID
 */
export function gdsSettings(options: GdsOptions): GdsSettings {
  const { agentName, agent, registration = "auto" } = options ?? {};
  if (typeof agentName !== "string" || agentName === "") throw optionInvalid("agentName", "a text that is not empty", agentName);
  const device = requireDeviceName("device", options.device ?? currentCudaDevice());
  if (!["auto", "chunks", "whole"].includes(registration)) {
    throw errorOf("ERR_OPTION_UNKNOWN", `GdsTransferManager: registration must be auto, chunks or whole, it is ${String(registration)}`, {
      facts: { option: "registration", value: registration },
    });
  }
  const plugin = options.plugin ?? (device === "host" ? "POSIX" : "GDS_MT");
  if (typeof plugin !== "string" || plugin === "") throw optionInvalid("plugin", "the name of a NIXL plugin", plugin);
  return Object.freeze({
    agentName,
    device,
    plugin,
    agent,
    threads: integer("threads", options.threads, maxThreads) ?? readEnv("MX_GDS_THREADS"),
    maxChunkBytes: maxChunkOption(options.maxChunkBytes) ?? readEnv("MX_GDS_MAX_CHUNK_KB") * 1024,
    timeoutMs: integer("timeoutMs", options.timeoutMs, maxTimeoutMs) ?? readEnv("MX_GDS_TIMEOUT"),
    closeTimeoutMs: integer("closeTimeoutMs", options.closeTimeoutMs, maxTimeoutMs) ?? defaultCloseTimeoutMs,
    registration: registration === "whole" ? "whole" : "chunks",
    library: options.library,
  });
}

/** Beyond the longest read there is it counts as that. */
function maxChunkOption(value: number | undefined): number | undefined {
  const given = integer("maxChunkBytes", value, Number.MAX_SAFE_INTEGER);
  const largest = maxChunkKib * 1024;
  if (given === undefined || given <= largest) return given;
  publish({ event: "option.clamped", option: "maxChunkBytes", given, used: largest });
  return largest;
}

function integer(option: string, value: number | undefined, max: number): number | undefined {
  return value === undefined ? undefined : requireInteger(option, value, { min: 1, max });
}
