import { chmodSync, chownSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { faultEnv, faultHits } from "../support/faults.js";
import { root, temporaryFolder } from "../support/folders.js";
import { type RunOptions, runNode } from "../support/run-node.js";
import { buildSafetensors, writeIndex } from "../support/safetensors.js";

/** Opens the path in a process of its own, and prints what came. */
const script = (path: string, { before = "", after = "" } = {}) => `
  import { readdirSync } from "node:fs";
  import { openCheckpoint } from ${JSON.stringify(join(root, "dist/checkpoint/open.js"))};
  const descriptors = () => readdirSync("/proc/self/fd").length;
  try {
    await openCheckpoint("/dev/null").catch(() => {});
    const before = descriptors();
    ${before}
    const { tensorCount, shards } = await openCheckpoint(${JSON.stringify(path)});
    console.log(JSON.stringify({ tensorCount, shards: shards.length, more: ${before === "" ? "descriptors() - before" : "undefined"} }));
  } catch ({ code, file, offset, operation, errno }) {
    console.log(JSON.stringify({ code, file, offset, operation, errno }));
  }
  ${after}
`;

async function opened(path: string, options: RunOptions & { before?: string } = {}): Promise<unknown> {
  const { code, stdout, stderr } = await runNode(script(path, options), options);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  return JSON.parse(stdout);
}

function family(count: number): string {
  const folder = temporaryFolder();
  const total = String(count).padStart(5, "0");
  const weightMap: Record<string, string> = {};
  for (let i = 1; i <= count; i++) {
    const file = `model-${String(i).padStart(5, "0")}-of-${total}.safetensors`;
    writeFileSync(join(folder, file), buildSafetensors({ [`t${i}`]: { dtype: "F32", shape: [i] } }));
    weightMap[`t${i}`] = file;
  }
  writeIndex(join(folder, "model.safetensors.index.json"), weightMap);
  return folder;
}

describe("opening", () => {
  it("needs few descriptors for many shards, and keeps none", async () => {
    const result = await opened(family(300), { under: ["sh", "-c", 'ulimit -n 128; exec "$@"', "sh"] });
    expect(result).toEqual({ tensorCount: 300, shards: 300, more: 0 });
  });

  it("goes on after short reads and interrupted ones", async () => {
    const folder = family(3);
    const report = join(folder, "report");
    const env = faultEnv({ shortBytes: 7, eintrEvery: 3 }, report);
    expect(await opened(folder, { env })).toMatchObject({ tensorCount: 3 });
    const { short, eintr } = faultHits(report);
    expect(Math.min(short, eintr)).toBeGreaterThan(0);
  });

  it("tells file, offset and errno of a read that fails", async () => {
    const folder = family(1);
    const report = join(folder, "report");
    expect(await opened(folder, { env: faultEnv({ failOffset: 20, files: "-of-00001.safetensors" }, report) })).toEqual({
      code: "ERR_CHECKPOINT_IO",
      file: join(folder, "model-00001-of-00001.safetensors"),
      offset: 0,
      operation: "pread",
      errno: "EIO",
    });
  });

  it.skipIf(process.getuid?.() !== 0)("tells what this user may not read", async () => {
    const folder = family(2);
    const before = "process.setgroups([]); process.setgid(65534); process.setuid(65534);";
    const index = join(folder, "model.safetensors.index.json");
    chownSync(folder, 65534, 65534);
    chmodSync(index, 0);
    const refused = { code: "ERR_CHECKPOINT_PERMISSION", errno: "EACCES" };
    expect(await opened(folder, { before })).toMatchObject({ ...refused, file: index });
    chmodSync(index, 0o644);
    chmodSync(join(folder, "model-00002-of-00002.safetensors"), 0);
    expect(await opened(folder, { before })).toMatchObject({ ...refused, file: join(folder, "model-00002-of-00002.safetensors") });
    const closed = join(folder, "closed");
    mkdirSync(closed, 0);
    expect(await opened(closed, { before })).toMatchObject({ ...refused, file: closed, operation: "readdir" });
    expect(await opened(join(closed, "x"), { before })).toMatchObject({ ...refused, operation: "readdir" });
  });

  it("survives a worker that ends meanwhile", async () => {
    const after = `
      const { Worker } = await import("node:worker_threads");
      const text = 'import("' + ${JSON.stringify(join(root, "dist/checkpoint/open.js"))} + '").then(({ openCheckpoint }) => {' +
        'for (let i = 0; i < 20; i++) openCheckpoint(' + JSON.stringify(${JSON.stringify(family(40))}) + ').catch(() => {}); postMessage(0); })';
      for (let i = 0; i < 8; i++) {
        const worker = new Worker("const { parentPort } = require('node:worker_threads'); globalThis.postMessage = (m) => parentPort.postMessage(m);" + text, { eval: true });
        await new Promise((resolve) => worker.once("message", resolve));
        await worker.terminate();
      }
      console.log("alive");
    `;
    const { code, signal, stdout, stderr } = await runNode(script(family(2), { after }));
    expect({ code, signal, stderr }).toEqual({ code: 0, signal: null, stderr: "" });
    expect(stdout).toMatch(/alive/);
  });
});
