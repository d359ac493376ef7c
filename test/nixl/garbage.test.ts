import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { fakesEnv, readLedger } from "../support/fakes.js";
import { root, temporaryFolder } from "../support/folders.js";
import { describeNixl } from "../support/nixl.js";
import { runNode } from "../support/run-node.js";

const imports = `
import { GdsTransferManager, NixlAgent, VmmArena, hostBackend, cudaBackend } from ${JSON.stringify(`${root}dist/index.js`)};
const [file] = process.argv.slice(2);
// What was looked at lives until the turn of the event loop ends.
const collect = async () => { await new Promise((resolve) => setTimeout(resolve, 10)); globalThis.gc(); };
async function until(done) {
  for (let round = 0; round < 200 && !done(); round++) await collect();
  return done();
}
const freed = (arena, address) => { try { arena.free(address); return true; } catch (error) { return error.code; } };
`;

describeNixl("what nobody can reach any more and nobody closed", (nixl) => {
  const run = (script: string, env: Readonly<Record<string, string>>, args: readonly string[] = []) =>
    runNode(imports + script, { env: { NIXL_LOG_LEVEL: "FATAL", ...env }, args, nodeArgs: ["--expose-gc"] });

  it("a registration stays as long as its agent, and goes with it", async () => {
    const { code, stdout, stderr } = await run(
      `
const arena = new VmmArena({ backend: hostBackend(), totalBytes: 2 ** 26 });
const address = arena.malloc(1);
let agent = await NixlAgent.create({ name: "lost", plugins: { UCX: {} }, progressThread: false });
const lost = await (async () => new WeakRef(await arena.register(agent)))();
console.log(await until(() => lost.deref() === undefined));
for (let round = 0; round < 5; round++) await collect();
console.log(freed(arena, address));
agent = undefined;
console.log(await until(() => freed(arena, address) === true));
arena.close();
`,
      { MX_NIXL_LIBRARY: nixl },
    );
    expect([code, stdout], stderr).toEqual([0, "true\nERR_ARENA_BUSY\ntrue\n"]);
  });

  it("an arena that is registered is closed after its registration", async () => {
    const ledger = join(temporaryFolder(), "ledger");
    const { code, stdout, stderr } = await run(
      `
const lost = await (async () => {
  const arena = new VmmArena({ backend: cudaBackend({ device: 0 }), totalBytes: 2 ** 26 });
  arena.malloc(1);
  const agent = await NixlAgent.create({ name: "lost", plugins: { GDS_MT: {} }, progressThread: false });
  await arena.register(agent);
  return new WeakRef(arena);
})();
console.log(await until(() => lost.deref() === undefined));
// One look for a busy arena takes 250 ms.
for (let round = 0; round < 60; round++) await collect();
`,
      fakesEnv({ ledger, nixl }),
    );
    expect([code, stdout], stderr).toEqual([0, "true\n"]);
    const { open, killed, events } = readLedger(ledger);
    expect([open.filter(({ kind }) => kind !== "context"), killed]).toEqual([[], undefined]);
    const closed = events.filter(({ what }) => what === "closed").map(({ kind }) => kind);
    expect(closed.lastIndexOf("nixl-registration")).toBeLessThan(closed.indexOf("mapping"));
  });

  it("a batch gives its memory back, and its manager's agent ends", async () => {
    const ledger = join(temporaryFolder(), "ledger");
    const file = join(temporaryFolder(), "weights.bin");
    writeFileSync(file, Buffer.alloc(100_000, 5));
    const { code, stdout, stderr } = await run(
      `
let [buffer, gds] = await (async () => {
  const gds = await GdsTransferManager.create({ agentName: "lost", device: "cuda:0" });
  const batch = await gds.batchLoadFile(file, 100_000, [[0, 100_000]]);
  return [batch.buffers[0], new WeakRef(gds)];
})();
console.log(await until(() => gds.deref() === undefined));
console.log((await buffer.copyToHost()).every((byte) => byte === 5));
buffer = undefined;
for (let round = 0; round < 60; round++) await collect();
`,
      fakesEnv({ ledger, nixl }),
      [file],
    );
    expect([code, stdout], stderr).toEqual([0, "true\ntrue\n"]);
    const { open, killed } = readLedger(ledger);
    expect([open.filter(({ kind }) => kind !== "context"), killed]).toEqual([[], undefined]);
  });
});
