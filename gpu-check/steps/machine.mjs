// What surrounds the device: kernel, processors, modules, bus, limits, huge pages.
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { arch, cpus, release, totalmem } from "node:os";
import { textOf } from "../support.mjs";

export default function machine({ answer }) {
  answer("host", { kernel: release(), arch: arch(), processors: cpus().length, model: cpus()[0]?.model, memoryBytes: totalmem() });
  const modules = textOf("/proc/modules") ?? "";
  for (const name of ["nvidia", "nvidia_uvm", "nvidia_fs", "nvidia_peermem", "gdrdrv"]) {
    answer("module", { name, loaded: new RegExp(`^${name} `, "m").test(modules) });
  }
  answer("nvidia-fs", { counters: textOf("/proc/driver/nvidia-fs/stats")?.split("\n").slice(0, 5) });
  answer("imex", { channels: existsSync("/dev/nvidia-caps-imex-channels") ? readdirSync("/dev/nvidia-caps-imex-channels") : [] });
  answer("limits", { lockedMemory: /^Max locked memory\s+(\S+)/m.exec(textOf("/proc/self/limits"))?.[1] });
  answer("huge pages", {
    anonymous: textOf("/sys/kernel/mm/transparent_hugepage/enabled"),
    shared: textOf("/sys/kernel/mm/transparent_hugepage/shmem_enabled"),
  });
  answer("numa", { nodes: textOf("/sys/devices/system/node/online") });
  for (const address of existsSync("/sys/bus/pci/devices") ? readdirSync("/sys/bus/pci/devices") : []) {
    const of = (name) => textOf(`/sys/bus/pci/devices/${address}/${name}`);
    if (of("vendor") !== "0x10de") continue;
    answer("pci", {
      address,
      node: of("numa_node"),
      speed: of("current_link_speed"),
      width: of("current_link_width"),
      most: of("max_link_speed"),
    });
  }
  const query =
    "name,driver_version,pci.bus_id,pcie.link.gen.current,pcie.link.width.current,memory.total,memory.free,compute_mode,mig.mode.current";
  const { status, stdout } = spawnSync("nvidia-smi", [`--query-gpu=${query}`, "--format=csv"], { encoding: "utf8", timeout: 10_000 });
  if (status === 0) answer("nvidia-smi", { lines: stdout.trim().split("\n") });
}
