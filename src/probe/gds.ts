import { cudaFacts } from "../arena/cuda-backend.js";
import type { CudaDeviceFacts } from "../native/addon.js";
import type { NixlApiOptions } from "../transfer/nixl/api.js";
import { formatBytes } from "../units.js";
import { cufileConfigurationFinding, cufileFinding } from "./cufile.js";
import { type Finding, found, missing, publishMissing, unknown } from "./finding.js";
import { type Machine, thisMachine } from "./machine.js";
import { nixlFinding } from "./nixl.js";
import { p2pDmaFinding } from "./p2pdma.js";
import type { ReadText } from "./read-text.js";

/** What the looks at a GPU ask of the machine, besides its libraries. */
export type GdsMachine = Pick<Machine, "read" | "list" | "kernelConfig" | "environment">;

/** One look, and what it is called. */
export interface GdsLook {
  readonly name: string;
  look(options: NixlApiOptions, machine: GdsMachine): Finding | Promise<Finding>;
}

/** Everything that reads straight to a GPU need, in the order in which it is shown. */
export const gdsLooks: readonly GdsLook[] = [
  { name: "nixl", look: (options, { environment }) => nixlFinding(options, environment) },
  { name: "cuda", look: () => cudaFinding() },
  { name: "nvidia_fs", look: (_, { read }) => nvidiaFsFinding(read) },
  { name: "p2pdma", look: (_, machine) => p2pDmaFinding(machine) },
  { name: "cufile", look: (_, { read }) => cufileFinding(read) },
  { name: "cufile-configuration", look: (_, { environment, read }) => cufileConfigurationFinding(environment, read) },
];

/**
 * Whether loads straight to a GPU are possible here: NIXL, the CUDA driver and its devices, the
 * kernel's ways (`nvidia_fs`, P2PDMA), cuFile and its configuration. Loads the libraries it finds
 * into this process, and starts the CUDA driver; {@link probe} leaves both to a process of its own.
 * Never throws. A file system can refuse all the same, which is seen when a file is registered.
 */
export async function probeGds(options: NixlApiOptions = {}): Promise<readonly Finding[]> {
  const findings = await gdsFindings(options, thisMachine);
  publishMissing(findings);
  return findings;
}

/** @internal */
export async function gdsFindings(options: NixlApiOptions, machine: GdsMachine): Promise<readonly Finding[]> {
  const findings: Finding[] = [];
  for (const look of gdsLooks) findings.push(await lookAt(look, options, machine));
  return Object.freeze(findings);
}

/** @internal Never throws. */
export async function lookAt({ name, look }: GdsLook, options: NixlApiOptions, machine: GdsMachine): Promise<Finding> {
  try {
    return await look(options, machine);
  } catch (thrown) {
    return unknown(name, messageOf(thrown));
  }
}

async function cudaFinding(): Promise<Finding> {
  const name = "cuda";
  try {
    const { library, driverVersion, devices } = await cudaFacts();
    const facts = { library, driverVersion, devices: devices.length };
    if (devices.length === 0) return missing(name, `${library} sees no device`, "Check CUDA_VISIBLE_DEVICES and the container.", facts);
    const list = devices.map((device, at) => `cuda:${at} ${deviceText(device)}`).join(", ");
    return found(name, `${library}, driver for CUDA ${driverVersion}: ${list}`, facts);
  } catch (thrown) {
    const remedy = "Install NVIDIA's driver, run the container with --gpus, or name the library with MX_CUDA_LIBRARY.";
    return missing(name, whyNoCuda(thrown), remedy);
  }
}

function whyNoCuda(thrown: unknown): string {
  // What to do stands beside it.
  return messageOf(thrown).replace(/^(there is no CUDA driver library \(.*\)): .*$/s, "$1");
}

function deviceText({ name, totalBytes, virtualMemory, gpuDirectRdma, dmaBuf }: CudaDeviceFacts): string {
  const lacks = [
    ...(virtualMemory ? [] : ["virtual memory management, which an arena needs"]),
    ...(gpuDirectRdma ? [] : ["GPUDirect RDMA"]),
    ...(dmaBuf ? [] : ["dma-buf"]),
  ];
  return `${name} (${formatBytes(totalBytes)}${lacks.length === 0 ? "" : `; without ${lacks.join(", ")}`})`;
}

function nvidiaFsFinding(read: ReadText): Finding {
  const name = "nvidia_fs";
  const modules = read("/proc/modules");
  const version = /version:\s*(\S+)/i.exec(read("/proc/driver/nvidia-fs/version") ?? "")?.[1] ?? null;
  if (modules === undefined && version === null) {
    return unknown(name, "/proc/modules cannot be read", "Look at it outside of the container.");
  }
  const shown = version === null ? "" : `, version ${version}`;
  if (version !== null || /^nvidia_fs /m.test(modules ?? "")) return found(name, `the kernel module is loaded${shown}`, { version });
  const remedy =
    "Load it (modprobe nvidia-fs), or use P2PDMA; without either cuFile copies in compatibility mode where its configuration allows that.";
  return missing(name, "the kernel module is not loaded", remedy, { version });
}

function messageOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}
