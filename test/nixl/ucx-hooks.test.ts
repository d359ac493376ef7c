import { expect, it } from "vitest";
import { compile } from "../support/compile.js";
import { root } from "../support/folders.js";
import { describeNixl } from "../support/nixl.js";
import { runNode } from "../support/run-node.js";

const script = `
import { subscribe } from "node:diagnostics_channel";
import { NixlAgent } from ${JSON.stringify(`${root}dist/index.js`)};
const [library] = process.argv.slice(2);
subscribe("modelexpress", ({ event, state }) => { if (event === "nixl.ucx-hooks") console.log("hooks", state); });
const agent = await NixlAgent.create({ name: "any", plugins: { UCX: {} }, library });
await agent.close();
console.log("closed");
`;

describeNixl("UCX loaded where the heap cannot grow", (library) => {
  const run = (env: Readonly<Record<string, string>> = {}) =>
    runNode(script, {
      args: [library],
      env: { LD_PRELOAD: compile("blocked-heap.c", ["-shared", "-fPIC", "-ldl"]), UCX_LOG_LEVEL: "fatal", ...env },
    });

  it.each([1, 2, 3])("leaves the heap as it is, run %i", async () => {
    const { code, signal, stdout, stderr } = await run();
    expect([code, signal], stderr).toEqual([0, null]);
    expect(stdout).toBe("hooks switched-off\nclosed\n");
    expect(stderr).toContain("heap moved by 0\n");
  });

  it("is as the user set it, even where that takes the heap's last page", async () => {
    const { signal, stdout, stderr } = await run({ UCX_MEM_MMAP_HOOK_MODE: "bistro" });
    expect(signal !== null || stderr.includes("heap moved by -4096"), stderr).toBe(true);
    // A process that died may have told nothing.
    if (signal === null) expect(stdout).toContain("hooks user-set");
  });

  it("is as the user set its events", async () => {
    const { code, stdout } = await run({ UCX_MEM_EVENTS: "n" });
    expect([code, stdout]).toEqual([0, "hooks user-set\nclosed\n"]);
  });
});
