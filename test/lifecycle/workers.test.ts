import { createHash } from "node:crypto";
import { describe, expect, it } from "vitest";
import { copyingDrivers, type Tensors, writeCheckpoint } from "../support/loading.js";
import { runNode } from "../support/run-node.js";

const MIB = 2 ** 20;
const content = Buffer.alloc(12 * MIB, "worker");
const tensors: Tensors = { a: { dtype: "U8", shape: [content.length], bytes: content } };
const digest = createHash("sha256").update(content).digest("hex");
const drivers = [...copyingDrivers, "map"] as const;

/** What every worker of these tests runs; the parent says with `workerData` what to do. */
const worker = `
  const { parentPort, workerData } = await import("node:worker_threads");
  const { loadCheckpoint, streamCheckpoint } = await import("modelexpress-client");
  const { path, driver, what } = workerData;
  parentPort.postMessage("ready");
  if (what === "digest") {
    const model = await loadCheckpoint(path, { driver });
    parentPort.postMessage((await model.digest()).get("a"));
    await model.close();
  } else if (what === "leave open") {
    const model = await loadCheckpoint(path, { driver });
    parentPort.postMessage(model.tensors.get("a").bytes()[3]);
    process.exit();
  } else if (what === "exit in a load") {
    loadCheckpoint(path, { driver });
    setTimeout(() => process.exit(), 3);
  } else {
    for (;;) {
      const model = await loadCheckpoint(path, { driver, onProgress() {} });
      if (what === "digests") await model.digest();
      await model.close();
      if (driver !== "map") for await (const tensor of streamCheckpoint(path, { driver, maxBytes: ${16 * MIB} })) tensor.bytes();
    }
  }`;

/**
 * Runs a script that has `start(what)`, which makes a worker and resolves with its messages at its
 * end, and `count()`, what the process holds.
 */
async function run(driver: string, body: string): Promise<unknown> {
  const script = `
    import { readdirSync, readFileSync } from "node:fs";
    import { Worker } from "node:worker_threads";
    const [path, driver] = process.argv.slice(2);
    const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
    function begin(what) {
      const worker = new Worker(${JSON.stringify(worker)}, { eval: true, workerData: { path, driver, what } });
      const messages = [];
      const ready = new Promise((resolve) => worker.on("message", (message) => (message === "ready" ? resolve() : messages.push(message))));
      const ended = new Promise((resolve, reject) => worker.once("error", reject).once("exit", () => resolve(messages)));
      return { worker, ready, ended };
    }
    function count() {
      const status = readFileSync("/proc/self/status", "utf8");
      const kib = (name) => Number(new RegExp("^" + name + ":\\\\s+(\\\\d+)", "m").exec(status)[1]);
      return { descriptors: readdirSync("/proc/self/fd").length, threads: kib("Threads"), residentMiB: kib("VmRSS") / 1024 };
    }
    ${body}`;
  const { code, signal, stdout, stderr } = await runNode(script, { args: [writeCheckpoint(tensors), driver], timeoutMs: 60_000 });
  if (code !== 0 || stderr !== "") throw new Error(`ended with ${code ?? signal}: ${stderr}${stdout}`);
  return JSON.parse(stdout);
}

describe.each(drivers)("workers that load by the driver %s", (driver) => {
  it("one after the other, in a process that never loads itself", async () => {
    const told = await run(
      driver,
      `const told = [];
       for (let round = 0; round < 3; round++) told.push(...(await begin("digest").ended));
       console.log(JSON.stringify(told));`,
    );
    expect(told).toEqual([digest, digest, digest]);
  });

  it("beside one another and beside the main thread", async () => {
    const told = await run(
      driver,
      `const { loadCheckpoint } = await import("modelexpress-client");
       const workers = [begin("digest"), begin("digest")];
       const model = await loadCheckpoint(path, { driver });
       const told = (await Promise.all(workers.map(({ ended }) => ended))).flat();
       told.push((await model.digest()).get("a"));
       console.log(JSON.stringify(told));`,
    );
    expect(told).toEqual([digest, digest, digest]);
  });

  it("leave models open, and exit in the middle of loads", async () => {
    const told = await run(
      driver,
      `const told = [];
       for (let round = 0; round < 2; round++) told.push(...(await begin("leave open").ended), ...(await begin("exit in a load").ended));
       console.log(JSON.stringify(told));`,
    );
    expect(told).toEqual([content[3], content[3]]);
  });

  it("are terminated at any moment, and leave no descriptor, thread or memory", async () => {
    const told = await run(
      driver,
      `const terminate = async (what, ms) => {
         const { worker, ready, ended } = begin(what);
         ended.catch(() => {});
         await ready;
         await sleep(ms);
         await worker.terminate();
       };
       for (const ms of [0, 5, 10]) await terminate("loads", ms);
       // Reads of a terminated worker run on until they are over.
       const settled = async () => {
         let last = count();
         for (let calm = 0, look = 0; calm < 5 && look < 200; look++) {
           await sleep(40);
           const now = count();
           calm = now.threads === last.threads && now.descriptors === last.descriptors ? calm + 1 : 0;
           last = now;
         }
         return last;
       };
       const before = await settled();
       for (let round = 0; round < 9; round++) await terminate(round % 3 === 0 ? "digests" : "loads", round * 5);
       let after = await settled();
       for (let look = 0; look < 10 && (after.threads > before.threads || after.residentMiB > before.residentMiB + 40); look++) after = await settled();
       console.log(JSON.stringify({ descriptors: after.descriptors - before.descriptors, threads: after.threads - before.threads, grewMiB: after.residentMiB - before.residentMiB }));`,
    );
    const { descriptors, threads, grewMiB } = told as { descriptors: number; threads: number; grewMiB: number };
    expect(descriptors).toBeLessThanOrEqual(0);
    expect(threads).toBeLessThanOrEqual(0);
    expect(grewMiB).toBeLessThan(40);
  }, 60_000);
});
