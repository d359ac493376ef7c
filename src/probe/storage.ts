import type { IoSupport } from "../native/addon.js";
import { fileSystemName } from "./file-systems.js";
import { type Finding, found, missing, unknown } from "./finding.js";
import type { Machine } from "./machine.js";

/** io_uring, direct I/O and the file system, tried on a file at or in `path`. */
export async function storageFindings(path: string, machine: Machine): Promise<Finding[]> {
  let file: string | undefined;
  try {
    file = await machine.fileAt(path);
  } catch (thrown) {
    const why = `${path} cannot be looked at: ${thrown instanceof Error ? thrown.message : String(thrown)}`;
    const support = await ioSupport(machine.addonPath(), machine);
    return [uringFinding(support, machine), unknown("direct-io", why), unknown("file-system", why)];
  }
  // io_uring needs no file in particular.
  const support = await ioSupport(file ?? machine.addonPath(), machine);
  return [uringFinding(support, machine), directFinding(file, path, support), await fileSystemFinding(path, machine)];
}

async function ioSupport(file: string, machine: Machine): Promise<IoSupport | undefined> {
  try {
    return await machine.addon().ioSupport(file);
  } catch {
    // The finding on the addon says why, or there is no thread to ask on.
    return undefined;
  }
}

function uringFinding(support: IoSupport | undefined, machine: Machine): Finding {
  const name = "io_uring";
  if (support === undefined) return unknown(name, "the native addon could not ask");
  if (support.ioUring === null) return found(name, "the kernel gives this process rings");
  const disabled = machine.read("/proc/sys/kernel/io_uring_disabled")?.trim() ?? null;
  const facts = { errno: support.ioUring, ioUringDisabled: disabled };
  const why = `io_uring fails with ${support.ioUring}`;
  if (support.ioUring === "ENOSYS") {
    return missing(
      name,
      `${why}: not in this kernel, or hidden by a seccomp filter`,
      "Use Linux 5.6 or newer, and a seccomp profile that allows it.",
      facts,
    );
  }
  if (disabled !== null && disabled !== "0") {
    return missing(name, `${why}: kernel.io_uring_disabled is ${disabled}`, "As root: sysctl kernel.io_uring_disabled=0.", facts);
  }
  if (support.ioUring === "ENOMEM") {
    return missing(name, `${why}: rings count as locked memory on older kernels`, "Raise `ulimit -l`.", facts);
  }
  return missing(
    name,
    `${why}: most often the seccomp profile of a container`,
    "Run the container with a profile that allows io_uring.",
    facts,
  );
}

function directFinding(file: string | undefined, path: string, support: IoSupport | undefined): Finding {
  const name = "direct-io";
  if (support === undefined) return unknown(name, "the native addon could not ask");
  if (file === undefined) return unknown(name, `${path} holds no file to try it on`, "Give the path of a checkpoint.");
  const facts = { file, errno: support.directIo ?? "", offsetAlignBytes: support.dioOffsetAlign, memAlignBytes: support.dioMemAlign };
  if (support.directIo === null) {
    const alignment =
      support.dioOffsetAlign === 0
        ? "statx does not say which alignment it needs, 4096 is assumed"
        : `offsets at multiples of ${support.dioOffsetAlign}, memory of ${support.dioMemAlign}`;
    return found(name, `${file} can be read with O_DIRECT; ${alignment}`, facts);
  }
  if (support.directIo === "EINVAL" || support.directIo === "EOPNOTSUPP") {
    return missing(
      name,
      `the file system refuses O_DIRECT (${support.directIo})`,
      "Loads read buffered. For more speed keep checkpoints on ext4 or xfs.",
      facts,
    );
  }
  return missing(name, `${file} cannot be read: ${support.directIo}`, "Check that this user may read it.", facts);
}

async function fileSystemFinding(path: string, machine: Machine): Promise<Finding> {
  const name = "file-system";
  try {
    const type = await machine.fileSystemType(path);
    const system = fileSystemName(type);
    return found(name, `${path} lies on ${system}`, { path, type: system });
  } catch (thrown) {
    return unknown(name, `statfs fails: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
  }
}
