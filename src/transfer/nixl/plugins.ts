import { readSetEnv } from "../../envs.js";

/** What has to be known about a NIXL plugin beyond what NIXL tells. */
export interface PluginTraits {
  /**
   * True when a failed transfer can leave other reads running that nothing reports. POSIX gives up
   * at the first failed read, and keeps the others queued with pointers to the request: only
   * destroying the agent, which waits for the kernel, ends them.
   */
  readonly strands: boolean;
  /** True when it can use the memory of devices. */
  readonly devices: boolean;
  /** True when reads go through cuFile, whose limit on registered bytes then counts. */
  readonly cufile: boolean;
  /**
   * True when a region of device memory may span several physical handles wherever the driver
   * exports it as one dma-buf. Not where the way to the memory may be another: UCX's `cuda_ipc`
   * addresses one handle, and cuFile pins pages by itself.
   */
  readonly spansAllocations: boolean;
}

const traits: ReadonlyMap<string, PluginTraits> = new Map([
  ["POSIX", { strands: true, devices: false, cufile: false, spansAllocations: false }],
  ["GDS", { strands: true, devices: true, cufile: true, spansAllocations: false }],
  ["GDS_MT", { strands: false, devices: true, cufile: true, spansAllocations: false }],
  ["UCX", { strands: false, devices: true, cufile: false, spansAllocations: false }],
  ["LIBFABRIC", { strands: true, devices: true, cufile: false, spansAllocations: true }],
]);

/**
 * Parameters by which a plugin reads with so many threads; none for one that does not take a
 * number.
 */
export function threadParameters(plugin: string, threads: number): Readonly<Record<string, string>> {
  return plugin === "GDS_MT" ? { thread_count: String(threads) } : {};
}

/**
 * Parameters that a caller gave, and, where they leave it open, what MX_GDS_THREADS asks of GDS_MT.
 * @throws ERR_ENV_INVALID
 */
export function withThreads(plugin: string, parameters: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  const threads = plugin === "GDS_MT" && parameters.thread_count === undefined ? readSetEnv("MX_GDS_THREADS") : undefined;
  return threads === undefined ? parameters : { ...parameters, ...threadParameters(plugin, threads) };
}

/**
 * Of an unknown plugin the worst is assumed, save that it may know devices: NIXL refuses what it
 * cannot do.
 */
export function pluginTraits(name: string): PluginTraits {
  return traits.get(name) ?? { strands: true, devices: true, cufile: false, spansAllocations: false };
}
