import { errorCodes } from "../error-codes.js";
import { ModelExpressError } from "../errors.js";
import { type Finding, found, missing } from "./finding.js";
import type { Machine } from "./machine.js";

/** The native addon, Node and the kernel. */
export function softwareFindings(machine: Machine): Finding[] {
  return [addonFinding(machine), nodeFinding(machine), kernelFinding(machine)];
}

function addonFinding(machine: Machine): Finding {
  try {
    const version = machine.addon().version();
    return found("addon", `version ${version} at ${machine.addonPath()}`, { version, path: machine.addonPath() });
  } catch (thrown) {
    const why = thrown instanceof Error ? thrown.message : String(thrown);
    const code = thrown instanceof ModelExpressError ? thrown.code : "ERR_NATIVE_LOAD";
    return missing("addon", why, errorCodes[code].remedy, { path: machine.addonPath(), code });
  }
}

function nodeFinding({ nodeVersion }: Machine): Finding {
  const [major = 0, minor = 0] = nodeVersion.slice(1).split(".").map(Number);
  return major > 20 || (major === 20 && minor >= 3)
    ? found("node", nodeVersion, { version: nodeVersion })
    : missing("node", `${nodeVersion} is older than 20.3`, "Use Node 20.3 or newer.", { version: nodeVersion });
}

function kernelFinding(machine: Machine): Finding {
  const release = machine.kernelRelease();
  const facts = { release, pageBytes: pageBytes(machine) };
  return found("kernel", `Linux ${release}${facts.pageBytes === null ? "" : `, pages of ${facts.pageBytes} bytes`}`, facts);
}

function pageBytes(machine: Machine): number | null {
  try {
    return machine.addon().pageBytes();
  } catch {
    // The finding on the addon says why.
    return null;
  }
}
