import type { LoadOptions } from "../../src/loader/options.js";
import type { LoadReport } from "../../src/loader/report.js";
import { type RunOptions, runNode } from "./run-node.js";

const script = `
  import { loadCheckpoint } from "modelexpress-client";
  import { execFileSync } from "node:child_process";
  const [path, options] = process.argv.slice(2);
  const { MX_TEST_DESCRIPTORS: descriptors } = process.env;
  if (descriptors !== undefined) execFileSync("prlimit", ["--pid", String(process.pid), "--nofile=" + descriptors]);
  const begun = performance.now();
  let told;
  try {
    const model = await loadCheckpoint(path, JSON.parse(options));
    told = { report: model.report, digests: Object.fromEntries(await model.digest()) };
    await model.close();
  } catch (error) {
    told = { error: { ...error, code: error.code, message: error.message }, ms: performance.now() - begun };
  }
  console.log(JSON.stringify(told));`;

export interface ChildOutcome {
  readonly report?: LoadReport;
  /** SHA-256 of each tensor, as the native side finds them. */
  readonly digests?: Readonly<Record<string, string>>;
  readonly error?: Readonly<Record<string, unknown>> & { readonly code: string; readonly message: string };
  /** From the call to the error. */
  readonly ms?: number;
}

/**
 * Loads in a process of its own, under faults and limits, with options that JSON can hold. The
 * process must end by itself, with code 0. MX_TEST_DESCRIPTORS limits its descriptors once its
 * modules are loaded, which Node opens many of at a time.
 */
export async function loadInChild(path: string, options: LoadOptions, run: RunOptions = {}): Promise<ChildOutcome> {
  const { code, signal, stdout, stderr } = await runNode(script, { ...run, args: [path, JSON.stringify(options)] });
  if (code !== 0 || stderr !== "") throw new Error(`the child ended with ${code ?? signal}: ${stderr}`);
  return JSON.parse(stdout);
}
