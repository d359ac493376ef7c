// Running other programs, for the scripts beside it. Node's own modules only: these scripts run
// before anything is installed.
import { spawn, spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";

/** Root of the clone. */
export const root = fileURLToPath(new URL("..", import.meta.url));

/** A failure that has been told in full: ends the script without a stack trace. */
export class Stop extends Error {
  constructor(message, exitCode = 1) {
    super(message);
    this.exitCode = exitCode;
  }
}

/**
 * Runs a script's main function; a {@link Stop} ends the process with its message and exit code.
 */
export async function main(body) {
  try {
    process.exitCode = (await body()) ?? 0;
  } catch (thrown) {
    if (!(thrown instanceof Stop)) throw thrown;
    console.error(thrown.message);
    process.exitCode = thrown.exitCode;
  }
}

/** True when `url` is the script that Node was started with. */
export function isMain(url) {
  return process.argv[1] !== undefined && fileURLToPath(url) === process.argv[1];
}

/**
 * Runs a program in the root, its stderr shown. Its stdout is shown, and given to `tee` chunk by
 * chunk; with `quiet` given to `tee` only. Resolves to the exit code.
 */
export function run(command, args, { env = {}, cwd = root, tee, quiet = false } = {}) {
  return new Promise((resolve, reject) => {
    const stdio = ["ignore", tee ? "pipe" : "inherit", "inherit"];
    const child = spawn(command, args, { cwd, env: { ...process.env, ...env }, stdio });
    child.stdout?.on("data", (chunk) => {
      if (!quiet) process.stdout.write(chunk);
      tee(chunk);
    });
    child.once("error", (cause) => reject(new Stop(`${command} cannot be run: ${cause.message}`, 69)));
    child.once("close", (code, signal) => resolve(code ?? (signal ? 1 : 0)));
  });
}

/** Runs a program whose failure ends the script. */
export async function must(command, args, options) {
  const code = await run(command, args, options);
  if (code !== 0) throw new Stop(`\`${[command, ...args].join(" ")}\` failed with exit code ${code}`);
}

/**
 * Runs a program, with `input` as its stdin, and returns its exit code (null when it is not there)
 * and output.
 */
export function capture(command, args, { env = {}, cwd = root, timeout, input } = {}) {
  const { status, stdout, stderr, error } = spawnSync(command, args, {
    cwd,
    env: { ...process.env, ...env },
    encoding: "utf8",
    maxBuffer: 1 << 28,
    timeout,
    input,
  });
  return { code: error ? null : status, stdout: stdout ?? "", stderr: stderr ?? error?.message ?? "" };
}

/** A program that npm installed. */
export function bin(name) {
  return `${root}node_modules/.bin/${name}`;
}
