import { type DriverName, type EnvName, envTable, readEnv } from "../envs.js";
import type { NixlApiOptions } from "../transfer/nixl/api.js";
import { type Finding, found, missing, publishMissing } from "./finding.js";
import { gdsFindingsApart } from "./gds-process.js";
import { gpuReads } from "./gpu-reads.js";
import { hugePagesFinding } from "./huge-pages.js";
import { limitFindings } from "./limits.js";
import { type Machine, thisMachine } from "./machine.js";
import { memoryFindings } from "./memory-findings.js";
import { processorsFinding, usableProcessors } from "./processors.js";
import { softwareFindings } from "./software.js";
import { storageFindings } from "./storage.js";

/** What this machine can do for a load, and why not. Plain data. */
export interface ProbeReport {
  /** File or folder that file system and direct I/O were asked about. */
  readonly path: string;
  readonly findings: readonly Finding[];
  /** What a load takes that is given neither option. */
  readonly defaults: ProbeDefaults;
}

/** @internal The part that loads no library. */
export interface MachineReport extends Omit<ProbeReport, "defaults"> {
  readonly defaults: Omit<ProbeDefaults, "gpuReads">;
}

export interface ProbeDefaults {
  /** Null where MX_DRIVER is not valid. */
  readonly driver: DriverName | null;
  /** What that driver comes to here. */
  readonly reads: string;
  /** Reading threads; null where MX_THREADS is not valid, or the addon cannot be asked. */
  readonly threads: number | null;
  /** What `auto` comes to for the memory of a GPU. */
  readonly gpuReads: string;
}

/** Its path, or, where it was removed meanwhile, the name that the kernel still knows. */
function workingDirectory(): string {
  try {
    return process.cwd();
  } catch {
    return ".";
  }
}

/**
 * Finds out what this machine can do, without changing anything: opens one file, makes and closes
 * one ring, reads a few files of the kernel; a process of its own loads the libraries of NIXL, CUDA
 * and cuFile, so that none of them gets into this one, prints, or takes it down. Never throws; what
 * cannot be found out is a finding too. Each that is missing is published as the event
 * `probe.reason`.
 * @param path checkpoint, or folder where checkpoints lie; default: the working directory
 */
export async function probe(path: string = workingDirectory(), options: NixlApiOptions = {}): Promise<ProbeReport> {
  const [gpu, { findings, defaults }] = await Promise.all([gdsFindingsApart(options), probeMachine(path, thisMachine)]);
  return Object.freeze({
    path,
    findings: Object.freeze([...findings, ...gpu]),
    defaults: Object.freeze({ ...defaults, gpuReads: gpuReads(gpu) }),
  });
}

/** @internal */
export async function probeMachine(path: string, machine: Machine): Promise<MachineReport> {
  const findings = [
    ...softwareFindings(machine),
    processorsFinding(machine),
    ...memoryFindings(machine),
    hugePagesFinding(machine),
    ...(await storageFindings(path, machine)),
    ...limitFindings(machine),
    environmentFinding(machine),
  ];
  publishMissing(findings);
  return Object.freeze({ path, findings: Object.freeze(findings), defaults: defaultsFrom(findings, machine) });
}

function environmentFinding({ environment }: Machine): Finding {
  const set: string[] = [];
  for (const name of Object.keys(envTable) as EnvName[]) {
    if ((environment[name] ?? "") === "") continue;
    try {
      readEnv(name, environment);
    } catch (thrown) {
      return missing(
        "environment",
        thrown instanceof Error ? thrown.message : String(thrown),
        `Set ${name} to an allowed value, or unset it.`,
        { name },
      );
    }
    set.push(`${name}=${environment[name]}`);
  }
  return found("environment", set.length === 0 ? "no variable is set" : set.join(", "));
}

function defaultsFrom(findings: readonly Finding[], machine: Machine): MachineReport["defaults"] {
  const driver = valid("MX_DRIVER", machine);
  const threads = valid("MX_THREADS", machine);
  const works = (name: string) => findings.find((finding) => finding.name === name)?.found !== false;
  return Object.freeze({
    driver: driver === undefined ? null : driver.value,
    reads: driver === undefined ? "nothing: MX_DRIVER is not valid" : readsOf(driver.value, works("io_uring"), works("direct-io")),
    threads: threads === undefined ? null : (threads.value ?? usableProcessors(machine)),
  });
}

function valid<Name extends EnvName>(name: Name, { environment }: Machine) {
  try {
    return { value: readEnv(name, environment) };
  } catch {
    // The finding on the environment says why.
    return undefined;
  }
}

function readsOf(driver: DriverName, uring: boolean, direct: boolean): string {
  if (driver === "map") return "mapped, not read";
  if (driver === "pread") return "buffered";
  if (driver === "nixl") return "by a plugin of NIXL's, POSIX unless another is named";
  if (driver === "io_uring") {
    if (uring && direct) return "direct, by io_uring";
    return `none, it is an error: ${uring ? "O_DIRECT" : "io_uring"} is refused`;
  }
  if (!direct) return "buffered, because O_DIRECT is refused";
  return `cached parts buffered, the rest direct by ${uring ? "io_uring" : "threads, because io_uring is refused"}`;
}
