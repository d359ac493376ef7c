// The steps of the check in their order: cheapest and riskiest first. Each runs in a process of its
// own until its deadline. `needs` names a step without whose success this one has nothing to work
// on. docs/hardware.md tells what each answer means.

/**
 * Steps asked of CUDA's driver and cuFile by a program of `programs/`; the others are modules of
 * `steps/`.
 */
export const steps = [
  { name: "device", seconds: 30 },
  { name: "machine", seconds: 20 },
  { name: "memory", seconds: 60, program: ({ device }) => ["memory", device] },
  { name: "host", seconds: 90 },
  { name: "cufile", seconds: 60, needs: "host", program: ({ device, file }) => ["cufile", device, file] },
  { name: "bus", seconds: 60, program: ({ device, busMib }) => ["bus", device, busMib] },
  { name: "probe", seconds: 30 },
  { name: "load-staged", seconds: 60, needs: "host" },
  { name: "load-nixl", seconds: 60, needs: "host" },
  { name: "load-auto", seconds: 60, needs: "host" },
  { name: "copy-back", seconds: 60, needs: "host" },
  { name: "ranges", seconds: 30, needs: "host" },
  { name: "arena", seconds: 30 },
  { name: "c-callers", seconds: 30 },
  { name: "remote-read", seconds: 90, needs: "host", environment: { UCX_PROTO_INFO: "y" } },
];
