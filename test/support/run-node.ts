import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { cacheFolder, root } from "./folders.js";

export interface RunOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  /** The child is killed after this long, and the run rejects. Default 20 s. */
  readonly timeoutMs?: number;
  /** Words put in front of the command: a shell with a limit, a runner under seccomp. */
  readonly under?: readonly string[];
  /** Flags of Node itself. */
  readonly nodeArgs?: readonly string[];
  readonly args?: readonly string[];
  /** Given the child's process id once it runs. */
  readonly onStart?: (pid: number) => void;
}

export interface Finished {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

/**
 * Runs an ES module given as text in a Node process of its own. It imports the built package by
 * `modelexpress-client` (its own name), and anything in `dist/` by path; what it learned it prints.
 */
export async function runNode(script: string, options: RunOptions = {}): Promise<Finished> {
  // Inside the clone, so that the package's own name and its dependencies resolve.
  const folder = mkdtempSync(join(cacheFolder(), "script-"));
  const file = join(folder, "script.mjs");
  writeFileSync(file, script);
  try {
    return await runProgram(process.execPath, [...(options.nodeArgs ?? []), file, ...(options.args ?? [])], options);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Runs the built command `mx`. */
export function runMx(args: readonly string[], options: RunOptions = {}): Promise<Finished> {
  return runProgram(process.execPath, [...(options.nodeArgs ?? []), join(root, "dist/cli/main.js"), ...args], options);
}

export function runProgram(command: string, args: readonly string[], options: RunOptions = {}): Promise<Finished> {
  const { env = {}, cwd = root, timeoutMs = 20_000, under = [], onStart } = options;
  const [program = command, ...rest] = [...under, command, ...args];
  const { promise, resolve, reject } = withResolvers<Finished>();
  // Other processes run the addon as it is packed, where a test does not ask for its own.
  const { MX_NATIVE_ADDON: _, ...inherited } = process.env;
  const child = spawn(program, rest, { cwd, env: { ...inherited, NODE_OPTIONS: "", ...env }, stdio: ["ignore", "pipe", "pipe"] });
  if (child.pid !== undefined) onStart?.(child.pid);
  let stdout = "";
  let stderr = "";
  const late = setTimeout(() => {
    child.kill("SIGKILL");
    reject(new Error(`${[program, ...rest].join(" ")} did not end within ${timeoutMs} ms\nstdout: ${stdout}\nstderr: ${stderr}`));
  }, timeoutMs);
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    stdout += text;
  });
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    stderr += text;
  });
  child.once("error", reject);
  child.once("close", (code, signal) => {
    clearTimeout(late);
    resolve({ code, signal, stdout, stderr });
  });
  return promise;
}

/** Promise.withResolvers, which Node 20 lacks. */
function withResolvers<T>() {
  let resolve: (value: T) => void = () => {};
  let reject: (reason: unknown) => void = () => {};
  const promise = new Promise<T>((yes, no) => {
    resolve = yes;
    reject = no;
  });
  return { promise, resolve, reject };
}
