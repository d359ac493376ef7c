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

it("of an arena that a worker leaves open, only the pages of moved memory stay", async () => {
  const worker = `
    const { parentPort } = await import("node:worker_threads");
    const { hostBackend, VmmArena } = await import("modelexpress-client");
    const arena = new VmmArena({ backend: hostBackend(), totalBytes: 2 ** 30 });
    const [address, other] = [arena.malloc(64 << 20), arena.malloc(64 << 20)];
    for (const at of [address, other]) new Uint8Array(arena.view(at, 64 << 20)).fill(7);
    const whole = new Uint8Array(arena.view(address + BigInt(1 << 20), 10_000));
    const stream = new ReadableStream({ type: "bytes", start(c) { c.enqueue(whole); c.close(); } });
    const { value } = await stream.getReader().read();
    parentPort.postMessage([arena.base, value.buffer], [value.buffer]);
    setInterval(() => {}, 1000);`;
  const script = `
    import { once } from "node:events";
    import { readFileSync } from "node:fs";
    import { Worker } from "node:worker_threads";
    const residentBytes = () => Number(/VmRSS:\\s+(\\d+)/.exec(readFileSync("/proc/self/status", "utf8"))[1]) * 1024;
    const worker = new Worker(${JSON.stringify(worker)}, { eval: true });
    const [[base, moved]] = await once(worker, "message");
    const before = residentBytes();
    await worker.terminate();
    for (let turn = 0; residentBytes() > before - 1.9 * 2 ** 26 && turn < 1000; turn++) await new Promise((resolve) => setTimeout(resolve, 10));
    const bytes = new Uint8Array(moved);
    console.log(base > 0n, before - residentBytes() > 1.9 * 2 ** 26, bytes.length, bytes.every((byte) => byte === 7));`;
  expect(await runNode(script)).toEqual({ code: 0, signal: null, stdout: "true true 10000 true\n", stderr: "" });
});
