import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileOf } from "../native/addon-path.js";
import type { NixlApiOptions } from "../transfer/nixl/api.js";
import { type Finding, publishMissing, unknown } from "./finding.js";
import { gdsLooks } from "./gds.js";

/**
 * How long one look may take: starting the driver of a machine with many GPUs takes seconds, and
 * python3 has ten to name its folders.
 */
const lookTimeoutMs = 20_000;

/** What the other process tells of one look: that it begins, or what it found. */
export type GdsMessage = { readonly looking: string } | { readonly finding: Finding };

/**
 * As `probeGds`, in a process of its own: what a library prints goes nowhere, and one that crashes
 * or hangs when it is loaded takes nothing with it; its finding says so, and another process goes
 * on with the next. Never throws.
 */
export function gdsFindingsApart(options: NixlApiOptions = {}): Promise<readonly Finding[]> {
  return findingsOf(join(dirname(fileOf(import.meta.url)), "gds-main.js"), options, lookTimeoutMs);
}

/** @internal */
export async function findingsOf(program: string, options: NixlApiOptions, timeoutMs: number): Promise<readonly Finding[]> {
  if (!existsSync(program)) {
    const why = `its program is not at ${program}, as where the package was put into a bundle`;
    return Object.freeze(gdsLooks.map(({ name }) => unknown(name, why, "Keep modelexpress-client external to the bundle.")));
  }
  const findings: Finding[] = [];
  while (findings.length < gdsLooks.length) {
    const [found, why] = await lookFrom(program, findings.length, options, timeoutMs);
    findings.push(...found);
    const lost = gdsLooks[findings.length];
    if (lost !== undefined) {
      findings.push(unknown(lost.name, `the process that looked at it ${why}`, "Load its library by hand to see what it does."));
    }
  }
  publishMissing(findings);
  return Object.freeze(findings);
}

/** What one process found from a look on, and why it ended. */
async function lookFrom(program: string, from: number, options: NixlApiOptions, timeoutMs: number): Promise<[Finding[], string]> {
  const { fork } = await import("node:child_process");
  return new Promise((resolve) => {
    const findings: Finding[] = [];
    const args = [String(from), JSON.stringify(options)];
    const child = fork(program, args, { execArgv: [], stdio: ["ignore", "ignore", "ignore", "ipc"] });
    const end = (why: string) => {
      clearTimeout(timer);
      // Libraries may have threads that take their time, or crash, at an orderly end.
      child.kill("SIGKILL");
      resolve([findings, why]);
    };
    const late = () => end(`gave no answer within ${timeoutMs} ms`);
    let timer = setTimeout(late, timeoutMs);
    child.on("message", (message: GdsMessage) => {
      clearTimeout(timer);
      timer = setTimeout(late, timeoutMs);
      if ("finding" in message) findings.push(Object.freeze(message.finding));
      if (from + findings.length === gdsLooks.length) end("is done");
    });
    child.once("error", (error) => end(`could not be started (${error.message})`));
    child.once("exit", (code, signal) => {
      const why = signal === null ? `ended with code ${code}` : `was ended by ${signal}`;
      // What it told before may still be on its way.
      if (child.connected) child.once("disconnect", () => end(why));
      else end(why);
    });
  });
}
