import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { fakesEnv } from "../support/fakes.js";
import { root } from "../support/folders.js";
import { runProgram } from "../support/run-node.js";
import { unavailable } from "../support/unavailable.js";

/**
 * Runs a module over the stand-ins that has an arena on a device and the address of `bytes` in it.
 */
function onDevice(bytes: number, script: string, under: readonly string[] = []) {
  const index = JSON.stringify(join(root, "dist/index.js"));
  const before = `import { readFileSync } from "node:fs";
import { spawnSync } from "node:child_process";
const { cudaBackend, VmmArena } = await import(${index});
const arena = new VmmArena({ backend: cudaBackend({ device: 0 }), totalBytes: 2 ** 33 });
const address = arena.malloc(${bytes});
`;
  return runProgram(process.execPath, ["--input-type=module", "-e", before + script], { env: fakesEnv(), under });
}

describe("copies to the host", () => {
  it("20,000 at once need few threads, and do with those that the system grants", async (context) => {
    // The limit binds no root, and counts all threads of a user: this one has no others.
    const under = ["prlimit", "--nproc=30:30", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    const readable = spawnSync(under[0] as string, [...under.slice(1), "test", "-r", join(root, "dist/index.js")]).status === 0;
    if (!readable) unavailable(context, "root, and a clone that another user may read");
    const { stdout, stderr } = await onDevice(
      4096,
      `const copies = await Promise.allSettled(Array.from({ length: 20_000 }, () => arena.native.copyToHost(address, 4096)));
console.log(copies.filter(({ status, value }) => status === "fulfilled" && value.length === 4096).length);
arena.close();`,
      under,
    );
    expect([stdout, stderr]).toEqual(["20000\n", ""]);
  });

  it("that there is no memory for are an error, not the end of the process", async () => {
    const { stdout, code } = await onDevice(
      2 ** 31,
      `await arena.native.copyToHost(address, 4096);
const bytes = 1024 * Number(/VmSize:\\s+(\\d+)/.exec(readFileSync("/proc/self/status", "utf8"))[1]);
spawnSync("prlimit", ["--pid", String(process.pid), "--as=" + (bytes + 2 ** 30)]);
await arena.native.copyToHost(address, 2 ** 31).catch((error) => console.log(JSON.parse(error.message).code));
console.log((await arena.native.copyToHost(address, 4096)).length);
arena.close();`,
    );
    expect([stdout, code]).toEqual(["ERR_ARENA_OUT_OF_MEMORY\n4096\n", 0]);
  });

  it("that are queued keep no process from exiting", async () => {
    const { code, signal } = await onDevice(
      4096,
      `for (let i = 0; i < 20_000; i++) arena.native.copyToHost(address, 4096).catch(() => {});
process.exit(7);`,
    );
    expect([code, signal]).toEqual([7, null]);
  });
});
