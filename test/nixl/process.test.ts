import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { root, temporaryFolder } from "../support/folders.js";
import { describeNixl } from "../support/nixl.js";
import { runNode } from "../support/run-node.js";

const imports = `
import { GdsTransferManager, NixlAgent, VmmArena, hostBackend } from ${JSON.stringify(`${root}dist/index.js`)};
import { Worker, isMainThread, parentPort, workerData } from "node:worker_threads";
const [library, file] = process.argv.slice(2);
const bytes = 8 * 2 ** 20;
`;

describeNixl("processes and workers with agents", (library) => {
  const run = (script: string, nodeArgs: readonly string[] = []) => {
    const file = join(temporaryFolder(), "weights.bin");
    writeFileSync(file, Buffer.alloc(8 * 2 ** 20, 5));
    return runNode(imports + script, { args: [library, file], nodeArgs });
  };

  it("exits with an agent, a registration and a batch in flight left open", async () => {
    const { code, signal, stdout } = await run(`
const arena = new VmmArena({ backend: hostBackend() });
arena.malloc(1);
const agent = await NixlAgent.create({ name: "left", plugins: { POSIX: {} }, library });
await arena.register(agent);
const gds = await GdsTransferManager.create({ agentName: "left", device: "host", library, maxChunkBytes: 4096, threads: 1 });
gds.batchLoadFile(file, bytes, [[0, bytes]]).catch(() => {});
await new Promise((resolve) => setTimeout(resolve, 5));
console.log("end");
process.exit();
`);
    expect([code, signal, stdout]).toEqual([0, null, "end\n"]);
  });

  it("exits by itself with an idle agent left open", async () => {
    const { code, signal, stdout } = await run(`
const agent = await NixlAgent.create({ name: "idle", plugins: { POSIX: {} }, library });
console.log(agent.name);
`);
    expect([code, signal, stdout]).toEqual([0, null, "idle\n"]);
  });

  it("waits for a load that nothing else keeps alive", async () => {
    const { code, stdout } = await run(`
import { loadCheckpoint } from ${JSON.stringify(`${root}dist/index.js`)};
import { writeFileSync } from "node:fs";
const header = Buffer.from(JSON.stringify({ t: { dtype: "U8", shape: [bytes], data_offsets: [0, bytes] } }));
const length = Buffer.alloc(8);
length.writeBigUInt64LE(BigInt(header.length));
writeFileSync(file + ".safetensors", Buffer.concat([length, header, Buffer.alloc(bytes, 9)]));
process.env.MX_NIXL_LIBRARY = library;
for (let round = 0; round < 5; round++) {
  const model = await loadCheckpoint(file + ".safetensors", { driver: "nixl", threads: 1, maxChunkBytes: 65_536 });
  await model.close();
}
console.log("done");
`);
    expect([code, stdout]).toEqual([0, "done\n"]);
  });

  it("survives workers that are terminated in the middle of a batch, and goes on with NIXL", async () => {
    const { code, signal, stdout } = await run(`
if (isMainThread) {
  for (let round = 0; round < 4; round++) {
    const worker = new Worker(new URL(import.meta.url), { argv: [library, file] });
    await new Promise((resolve, reject) => { worker.on("message", resolve); worker.on("error", reject); });
    await worker.terminate();
  }
  const gds = await GdsTransferManager.create({ agentName: "main", device: "host", library });
  const batch = await gds.batchLoadFile(file, bytes, [[0, bytes]]);
  console.log(batch.buffers[0].bytes().every((byte) => byte === 5));
  await batch.close();
  await gds.shutdown();
} else {
  const gds = await GdsTransferManager.create({ agentName: "worker", device: "host", library, maxChunkBytes: 4096, threads: 1 });
  gds.batchLoadFile(file, bytes, [[0, bytes]]).catch(() => {});
  setTimeout(() => parentPort.postMessage("reading"), 3);
}
`);
    expect([code, signal, stdout]).toEqual([0, null, "true\n"]);
  });

  it("ends agents that nobody can reach any more", async () => {
    const { code, stdout } = await run(
      `
import { readdirSync, readFileSync } from "node:fs";
const threads = () => readdirSync("/proc/self/task").filter((task) => { try { return readFileSync("/proc/self/task/" + task + "/comm", "utf8") === "mx-nixl\\n"; } catch { return false; } }).length;
await (async () => { await NixlAgent.create({ name: "lost", plugins: { POSIX: {} }, library, progressThread: false }); })();
console.log(threads());
for (let round = 0; round < 200 && threads() > 0; round++) {
  globalThis.gc();
  await new Promise((resolve) => setTimeout(resolve, 10));
}
console.log(threads());
`,
      ["--expose-gc"],
    );
    expect([code, stdout]).toEqual([0, "1\n0\n"]);
  });
});
