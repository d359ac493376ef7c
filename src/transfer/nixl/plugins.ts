/** What has to be known about a NIXL plugin beyond what NIXL tells. */
export interface PluginTraits {
  /**
   * True when a failed transfer can leave other reads running that nothing reports. POSIX gives up at the first failed read, and keeps the
   * others queued with pointers to the request: only destroying the agent, which waits for the kernel, ends them.
   */
  readonly strands: boolean;
  /** True when reads go through cuFile, whose limit on registered bytes then counts. */
  readonly cufile: boolean;
}

const traits: ReadonlyMap<string, PluginTraits> = new Map([
  ["POSIX", { strands: true, cufile: false }],
  ["GDS", { strands: true, cufile: true }],
  ["GDS_MT", { strands: false, cufile: true }],
  ["UCX", { strands: false, cufile: false }],
]);

/** Of an unknown plugin the worst is assumed. */
export function pluginTraits(name: string): PluginTraits {
  return traits.get(name) ?? { strands: true, cufile: false };
}
