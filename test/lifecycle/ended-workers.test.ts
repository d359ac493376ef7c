import { describe, expect, it } from "vitest";
import { fakesEnv } from "../support/fakes.js";
import { writeCheckpoint } from "../support/loading.js";
import { runNode } from "../support/run-node.js";

const content = Buffer.alloc(3 * 2 ** 20, "moved");

/** Ways to move memory out of a view; `transfer` from Node 21 on, which .ci/run tries. */
const moves = {
  stream: `const stream = new ReadableStream({ type: "bytes", start(c) { c.enqueue(bytes); c.close(); } });
           const { value } = await stream.getReader().read(); const moved = value.buffer;`,
  ...("transfer" in ArrayBuffer.prototype && { transfer: "const moved = bytes.buffer.transfer();" }),
};

const sources = {
  "a view": ["{}", "const bytes = tensor.bytes();"],
  "a copy of a device's memory": ['{ device: "cuda:0", driver: "staged" }', "const bytes = await tensor.copyToHost();"],
} as const;

describe.each(Object.entries(sources))("memory moved out of %s", (_name, [options, take]) => {
  it.each(Object.entries(moves))("outlives the worker that moved it (%s)", async (_move, code) => {
    const worker = `
      const { parentPort, workerData } = await import("node:worker_threads");
      const { loadCheckpoint } = await import("modelexpress-client");
      const model = await loadCheckpoint(workerData, ${options});
      const tensor = model.tensors.get("a");
      ${take}
      const first = Buffer.from(bytes).equals(Buffer.alloc(bytes.length, "moved"));
      ${code}
      parentPort.postMessage([first, moved], [moved]);
      setInterval(() => {}, 1000);`;
    const script = `
      import { once } from "node:events";
      import { Worker } from "node:worker_threads";
      const worker = new Worker(${JSON.stringify(worker)}, { eval: true, workerData: process.argv[2] });
      const [[first, moved]] = await once(worker, "message");
      await worker.terminate();
      const bytes = Buffer.from(moved);
      console.log(first, bytes.length, bytes.equals(Buffer.alloc(bytes.length, "moved")));
      bytes.fill(1);`;
    const path = writeCheckpoint({ a: { dtype: "U8", shape: [content.length], bytes: content } });
    const ran = await runNode(script, { args: [path], env: fakesEnv({}) });
    expect(ran).toEqual({ code: 0, signal: null, stdout: `true ${content.length} true\n`, stderr: "" });
  });
});
