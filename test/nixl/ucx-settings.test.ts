import { readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import { compile } from "../support/compile.js";
import { root } from "../support/folders.js";
import { describeNixl } from "../support/nixl.js";
import { runNode } from "../support/run-node.js";

/** Loads UCX by an agent, tells the settings, and does `then`. */
const script = (then: string, before = "") => `
import { readFileSync } from "node:fs";
import { subscribe } from "node:diagnostics_channel";
import { NixlAgent } from ${JSON.stringify(`file://${root}dist/index.js`)};
const [library] = process.argv.slice(2);
subscribe("modelexpress", ({ event, variable, state }) => { if (event === "nixl.ucx-setting") console.log(variable, state); });
${before}
const agent = await NixlAgent.create({ name: "any", plugins: { UCX: {} }, library });
await agent.close();
${then}
console.log("closed");
`;

const allSet = "UCX_MEM_MMAP_HOOK_MODE set\nUCX_DEBUG_SIGNO set\nUCX_LOG_FILE set\n";
/** Whether the process has a handler for SIGHUP, as the kernel says. */
const catchesHangUp = `console.log("caught", (parseInt(/^SigCgt:\\s*(\\w+)/m.exec(readFileSync("/proc/self/status", "utf8"))[1].slice(-1), 16) & 1) === 1);`;

describeNixl("A process that loads UCX", (library) => {
  const run = (text: string, env: Readonly<Record<string, string>> = {}) =>
    runNode(text, { args: [library], env: { UCX_LOG_LEVEL: "fatal", ...env } });

  describe("where the heap cannot grow", () => {
    // malloc gives nothing of the heap back by itself, so that its end moves by what UCX does
    // alone.
    const own = { MALLOC_TRIM_THRESHOLD_: String(2 ** 40) };
    const preloaded = (env: Readonly<Record<string, string>> = {}) =>
      run(script(""), { LD_PRELOAD: compile("blocked-heap.c", ["-shared", "-fPIC", "-ldl"]), ...own, ...env });

    it.each([1, 2, 3])("keeps its heap as it is, run %i", async () => {
      const { code, signal, stdout, stderr } = await preloaded();
      expect({ code, signal, stdout }, stderr).toEqual({ code: 0, signal: null, stdout: `${allSet}closed\n` });
      expect(stderr).toContain("heap moved by 0\n");
    });

    it("keeps the user's setting, even where that takes the heap's last page", async () => {
      const { signal, stdout, stderr } = await preloaded({ UCX_MEM_MMAP_HOOK_MODE: "bistro" });
      expect(signal !== null || stderr.includes("heap moved by -4096"), stderr).toBe(true);
      // A process that died may have told nothing.
      if (signal === null) expect(stdout).toContain("UCX_MEM_MMAP_HOOK_MODE user-set");
    });

    it("takes UCX_MEM_EVENTS for the user's setting of the hooks", async () => {
      const { code, stdout } = await preloaded({ UCX_MEM_EVENTS: "n" });
      expect(code).toBe(0);
      expect(stdout).toContain("UCX_MEM_MMAP_HOOK_MODE user-set\n");
    });
  });

  it("still ends on SIGHUP", async () => {
    const { signal, stdout } = await run(
      script(`${catchesHangUp} process.kill(process.pid, "SIGHUP"); await new Promise(() => setTimeout(() => {}, 10_000));`),
    );
    expect({ signal, stdout }).toEqual({ signal: "SIGHUP", stdout: `${allSet}caught false\n` });
  });

  it("still runs its own handler of SIGHUP, set before", async () => {
    const hangUp = `const alive = setInterval(() => {}, 1000);
      const hungUp = new Promise((resolve) => process.once("SIGHUP", () => resolve(console.log("hung up"))));`;
    const { code, stdout } = await run(script(`process.kill(process.pid, "SIGHUP"); await hungUp; clearInterval(alive);`, hangUp));
    expect({ code, stdout }).toEqual({ code: 0, stdout: `${allSet}hung up\nclosed\n` });
  });

  it("leaves SIGHUP to UCX where the user says so", async () => {
    const { code, stdout } = await run(script(catchesHangUp), { UCX_DEBUG_SIGNO: "HUP" });
    expect({ code, stdout }).toEqual({ code: 0, stdout: `${allSet.replace("SIGNO set", "SIGNO user-set")}caught true\nclosed\n` });
  });

  it("has nothing of UCX's log on stdout", async () => {
    const { code, stdout, stderr } = await run(script(""), { UCX_LOG_LEVEL: "info" });
    expect({ code, stdout }).toEqual({ code: 0, stdout: `${allSet}closed\n` });
    expect(stderr).toMatch(/UCX\s+INFO/);
  });

  it("is safe when a worker loads UCX first", async () => {
    const worker = script(catchesHangUp, `import { workerData } from "node:worker_threads";`).replace(
      "process.argv.slice(2)",
      "[workerData]",
    );
    const parent = `
      import { Worker } from "node:worker_threads";
      import { once } from "node:events";
      const worker = new Worker(new URL("data:text/javascript," + encodeURIComponent(${JSON.stringify(worker)})), { workerData: process.argv[2] });
      await once(worker, "exit");
    `;
    const { code, stdout } = await run(parent);
    expect({ code, stdout }).toEqual({ code: 0, stdout: `${allSet}caught false\nclosed\n` });
  });

  it("is told when UCX was there before", async () => {
    const folder = join(dirname(dirname(library)), "nixl_cu12.libs");
    const libraries = readdirSync(folder)
      .filter((file) => /^libuc[ms]-/.test(file))
      .map((file) => join(folder, file));
    const { code, stdout } = await run(script(catchesHangUp), { LD_PRELOAD: libraries.join(" ") });
    expect({ code, stdout }).toEqual({ code: 0, stdout: `${allSet.replaceAll(" set\n", " loaded-before\n")}caught true\nclosed\n` });
  });
});
