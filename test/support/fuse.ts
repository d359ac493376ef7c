import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync } from "node:fs";
import { join } from "node:path";
import { onTestFinished, type TestContext } from "vitest";
import { compile } from "./compile.js";
import { temporaryFolder } from "./folders.js";
import { unavailable } from "./unavailable.js";

/** What the server does, see fuse-server.c. */
export type FuseOptions = Readonly<
  Partial<{
    direct: 1;
    odirect: "einval";
    short: number;
    fail: number;
    ino: "relookup";
    mtime: "now" | "trunc";
    delay: number;
    at: number;
    event: "damage" | "grow" | "replace" | "remove" | "unmount";
  }>
>;

/** A folder served by fuse-server.c until the end of the test. */
export interface FuseMount {
  readonly path: string;
  /** Ends the server at once; its mount goes with it. */
  unmount(): Promise<void>;
}

/**
 * Mounts `backing`. Where the machine has no FUSE for this user, the test ends as not available.
 */
export async function mountFuse(context: TestContext, backing: string, options: FuseOptions = {}): Promise<FuseMount> {
  const reason = fuseMissing();
  if (reason !== undefined) unavailable(context, reason);
  const path = temporaryFolder();
  const words = Object.entries(options).map(([key, value]) => `${key}=${value}`);
  const server = spawn(compile("fuse-server.c", ["-pthread"]), [backing, path, ...words], { stdio: ["ignore", "pipe", "pipe"] });
  let told = "";
  server.stderr.setEncoding("utf8").on("data", (text: string) => {
    told += text;
  });
  const ended = once(server, "close");
  const unmount = async () => {
    server.kill("SIGTERM");
    await ended;
  };
  // Before the folder goes: what is set up last is undone first.
  onTestFinished(unmount);
  await mounted(server, ended);
  if (server.exitCode !== null) unavailable(context, `FUSE cannot be mounted: ${told.trim()}`);
  return { path, unmount };
}

/** Waits for the server's word, or its end. */
async function mounted(server: ChildProcess, ended: Promise<unknown>): Promise<void> {
  const { stdout } = server;
  if (stdout === null) throw new Error("the server has no output");
  await Promise.race([once(stdout, "data"), ended]);
}

let missing: string | undefined | null = null;

/** Why no FUSE file system can be mounted here. */
export function fuseMissing(): string | undefined {
  if (missing === null) missing = whyMissing();
  return missing;
}

function whyMissing(): string | undefined {
  try {
    closeSync(openSync("/dev/fuse", "r+"));
  } catch (error) {
    return `/dev/fuse cannot be opened: ${(error as NodeJS.ErrnoException).code}`;
  }
  // A tmpfs of its own: who may not mount that may not mount FUSE either.
  const { status, stderr } = spawnSync("unshare", ["--mount", "mount", "-t", "tmpfs", "none", join("/", "mnt")], { encoding: "utf8" });
  return status === 0 ? undefined : `this user may not mount: ${String(stderr).trim()}`;
}
