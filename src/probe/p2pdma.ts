import { formatBytes } from "../units.js";
import { type Finding, found, missing, unknown } from "./finding.js";
import type { Machine } from "./machine.js";

const name = "p2pdma";
const devicesFolder = "/sys/bus/pci/devices";
const nvidiaVendor = "0x10de";
const instead = "or load nvidia_fs";

type P2pDmaMachine = Pick<Machine, "read" | "list" | "kernelConfig">;

/**
 * Reads from NVMe straight to a GPU by the kernel's own PCI P2PDMA, without nvidia_fs. What it
 * takes: "NVMe P2PDMA Troubleshooting" in the GPUDirect Storage troubleshooting guide; how a device
 * offers its memory: Documentation/ABI/testing/sysfs-bus-pci, `p2pmem`.
 */
export async function p2pDmaFinding({ read, list, kernelConfig }: P2pDmaMachine): Promise<Finding> {
  const devices = list(devicesFolder)?.filter((device) => read(`${devicesFolder}/${device}/vendor`)?.trim() === nvidiaVendor);
  const offered = (devices ?? []).flatMap((device) => {
    const bytes = Number(read(`${devicesFolder}/${device}/p2pmem/size`)?.trim() || Number.NaN);
    return Number.isNaN(bytes) ? [] : [`${device} (${formatBytes(bytes)})`];
  });
  const config = await kernelConfig();
  const kernel = config === undefined ? null : /^CONFIG_PCI_P2PDMA=y$/m.test(config);
  const dwords = /^RegistryDwords:\s*"(.*)"$/m.exec(read("/proc/driver/nvidia/params") ?? "")?.[1] ?? null;
  const multipath = read("/sys/module/nvme_core/parameters/multipath")?.trim() ?? null;
  const facts = { kernel, registryDwords: dwords, nvmeMultipath: multipath, devices: devices?.length ?? null, offered: offered.join(" ") };
  if (offered.length > 0) {
    const why = `memory is offered by ${offered.join(", ")}`;
    if (multipath !== "Y") return found(name, why, facts);
    return missing(name, `${why}, but NVMe multipath is on`, `options nvme_core multipath=N in /etc/modprobe.d, ${instead}.`, facts);
  }
  if (kernel === false) {
    return missing(name, "the kernel is built without CONFIG_PCI_P2PDMA", `Use a kernel of 6.2 or newer that has it, ${instead}.`, facts);
  }
  if (devices === undefined) return unknown(name, `${devicesFolder} cannot be read`, "Look at it outside of the container.", facts);
  if (devices.length === 0) return missing(name, "there is no NVIDIA device on the PCI bus", "Give the machine a GPU.", facts);
  const told = kernel === null ? "; whether the kernel has CONFIG_PCI_P2PDMA cannot be told" : "";
  const why = `none of ${devices.length} NVIDIA device(s) offers its memory (${devicesFolder}/*/p2pmem)${told}`;
  const options = 'options nvidia NVreg_RegistryDwords="RMForceStaticBar1=1;RmForceDisableIomapWC=1;"';
  const remedy = /RMForceStaticBar1=1/i.test(dwords ?? "")
    ? `Static BAR1 is asked for already: check that the driver is NVIDIA's open one, 565 or newer, and the GPU an Ampere or newer; ${instead}.`
    : `With NVIDIA's open driver 565 or newer: ${options} in /etc/modprobe.d, and reboot; ${instead}.`;
  return missing(name, why, remedy, facts);
}
