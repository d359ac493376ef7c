import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it, type TestContext } from "vitest";
import type { LoadOptions } from "../../src/loader/options.js";
import { fakesEnv } from "../support/fakes.js";
import { faultEnv, faultHits } from "../support/faults.js";
import { temporaryFolder } from "../support/folders.js";
import { evict, ioUringRefusal, writeCheckpoint } from "../support/loading.js";
import { limitFile, memoryGroup, usageFile } from "../support/memory-group.js";
import { describeNixl } from "../support/nixl.js";
import { runNode } from "../support/run-node.js";
import { dataStartOf } from "../support/safetensors.js";
import { unavailable } from "../support/unavailable.js";

const MIB = 2 ** 20;

/**
 * Lowers the limit of its own group below what the plan says, and raises it step by step until the
 * load is let pass; then that must end well. Memory of a stand-in's device is this process's own,
 * so it comes on top.
 */
const script = `
import { readFileSync, writeFileSync } from "node:fs";
import { createHash } from "node:crypto";
import { join } from "node:path";
import { loadCheckpoint, openCheckpoint, planLoad, streamCheckpoint } from "modelexpress-client";
const [path, text] = process.argv.slice(2);
const { folder, limitFile, usageFile, version, load, maxBytes } = JSON.parse(text);
const number = (file) => Number(readFileSync(join(folder, file), "utf8"));
function usedBytes() {
  const stat = readFileSync(join(folder, "memory.stat"), "utf8");
  const cached = (key) => Number(new RegExp("^" + (version === 1 ? "total_" : "") + key + " (\\\\d+)$", "m").exec(stat)[1]);
  return number(usageFile) - cached("inactive_file") - cached("active_file");
}
const checkpoint = await openCheckpoint(path);
const { device, driver, threads } = load;
const { memory } = planLoad(checkpoint, { device, driver, threads });
const own = device === "host" ? 0 : memory.requiredBytes;
const needed = (device === "host" ? (maxBytes ?? memory.requiredBytes) : 0) + memory.slackBytes;
const hex = (bytes) => createHash("sha256").update(bytes).digest("hex");
const told = { refused: 0, digests: {}, limitMoreBytes: 0 };
const base = usedBytes();
for (let more = needed - 2 ** 20; ; more += 2 ** 18) {
  try {
    writeFileSync(join(folder, limitFile), String(base + own + more));
  } catch {
    continue; // The group has more than that already.
  }
  try {
    if (maxBytes === undefined) {
      const model = await loadCheckpoint(checkpoint, load);
      told.memory = model.report.memory;
      told.used = model.report.driver.used;
      for (const [name, digest] of await model.digest()) told.digests[name] = digest;
      await model.close();
    } else {
      for await (const tensor of streamCheckpoint(checkpoint, { ...load, maxBytes })) told.digests[tensor.name] = hex(tensor.bytes());
    }
    told.limitMoreBytes = more;
    break;
  } catch (error) {
    if (error.code !== "ERR_MEMORY_WOULD_NOT_FIT") throw error;
    told.refused++;
  }
}
console.log(JSON.stringify(told));`;

const tensorBytes = 24 * MIB;
const tensors = ["a", "b", "c", "d"];

/** With data that starts `odd`, off every alignment, it is read directly through bounce buffers. */
function written(odd: boolean) {
  const data = tensors.map((_, at) => Buffer.alloc(tensorBytes, `tensor ${at} `));
  const specs = Object.fromEntries(
    tensors.map((name, at) => [name, { dtype: "F32" as const, shape: [tensorBytes / 4], bytes: data[at] ?? Buffer.alloc(0) }]),
  );
  const path = writeCheckpoint(specs, odd ? { pad: 1, metadata: { fill: "." } } : {});
  if (odd) expect(dataStartOf(readFileSync(path)) % 4).not.toBe(0);
  const digests = Object.fromEntries(
    tensors.map((name, at) => [
      name,
      createHash("sha256")
        .update(data[at] ?? "")
        .digest("hex"),
    ]),
  );
  return { path, digests };
}

interface Limited {
  readonly load?: LoadOptions;
  readonly odd?: boolean;
  readonly maxBytes?: number;
  readonly env?: Readonly<Record<string, string>>;
}

async function loadWithin(context: TestContext, { load = {}, odd = false, maxBytes, env = {} }: Limited) {
  const group = memoryGroup(context);
  const { path, digests } = written(odd);
  evict(path);
  const settings = {
    folder: group.folder,
    version: group.version,
    limitFile: limitFile(group.version),
    usageFile: usageFile(group.version),
    load: { device: "host", threads: 2, ...load },
    maxBytes,
  };
  const { code, signal, stdout, stderr } = await runNode(script, {
    under: group.under,
    args: [path, JSON.stringify(settings)],
    env,
    timeoutMs: 60_000,
  });
  expect({ code, signal, stderr, killed: group.killed() }).toEqual({ code: 0, signal: null, stderr: "", killed: 0 });
  const told = JSON.parse(stdout);
  expect(told.digests).toEqual(digests);
  return told;
}

describe("in a control group just large enough for the plan", { timeout: 60_000 }, () => {
  for (const driver of ["auto", "pread", "io_uring"] as const) {
    it(`a load by ${driver} is refused, or ends well`, async (context) => {
      if (driver === "io_uring" && ioUringRefusal() !== "") unavailable(context, `io_uring: ${ioUringRefusal()}`);
      const { refused, memory } = await loadWithin(context, { load: { driver } });
      expect(refused).toBeGreaterThan(0);
      expect(memory).toMatchObject({ check: "enforce", fits: true });
      expect(memory.requiredBytes).toBeGreaterThanOrEqual(4 * tensorBytes);
    });
  }

  it("a load by auto through the page cache, where O_DIRECT is refused, is refused, or ends well", async (context) => {
    const hits = join(temporaryFolder(), "hits");
    const { refused, memory } = await loadWithin(context, { load: { driver: "auto" }, env: faultEnv({ noDirect: true }, hits) });
    expect(refused).toBeGreaterThan(0);
    expect(faultHits(hits).nodirect).toBeGreaterThan(0);
    expect(memory.slack.ringBytes).toBeGreaterThan(memory.slack.threadBytes);
  });

  it("a load through bounce buffers is refused, or ends well", async (context) => {
    const { refused, memory } = await loadWithin(context, { odd: true, load: { driver: "auto" } });
    expect(refused).toBeGreaterThan(0);
    expect(memory.slack.bounceBytes).toBeGreaterThan(32 * MIB);
  });

  it("a load by many threads is refused, or ends well", async (context) => {
    const { refused } = await loadWithin(context, { load: { driver: "pread", threads: 16 } });
    expect(refused).toBeGreaterThan(0);
  });

  it("a mapped one, which takes little, is refused, or ends well", async (context) => {
    const { refused, limitMoreBytes } = await loadWithin(context, { load: { driver: "map" } });
    expect(refused).toBeGreaterThan(0);
    expect(limitMoreBytes).toBeLessThan(3 * tensorBytes);
  });

  it("a bounded stream is refused, or ends well", async (context) => {
    const { refused, limitMoreBytes } = await loadWithin(context, { maxBytes: 2 * tensorBytes });
    expect(refused).toBeGreaterThan(0);
    expect(limitMoreBytes).toBeLessThan(4 * tensorBytes);
  });

  it("a load by way of pinned memory to a device is refused, or ends well", async (context) => {
    const env = { ...fakesEnv(), MX_NIXL_LIBRARY: "/nowhere/libnixl_capi.so" };
    const { memory } = await loadWithin(context, { load: { driver: "staged", device: "cuda:0" }, env });
    expect(memory).toMatchObject({ fits: true, limitedBy: "free memory of cuda:0", slack: { pinnedBytes: 4 * tensorBytes } });
  });
});

/** Loads by two threads at once, with memory for one of them and a half. */
const atOnce = `
import { writeFileSync, readFileSync } from "node:fs";
import { once } from "node:events";
import { join } from "node:path";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import { loadCheckpoint, openCheckpoint, planLoad } from "modelexpress-client";
async function outcome(path) {
  try {
    const model = await loadCheckpoint(path, { threads: 2 });
    return ["loaded", model.report.bytes];
  } catch (error) {
    return [error.code, error.limitedBy?.replace(/[0-9.]+ MiB/, "N MiB")];
  }
}
if (isMainThread) {
  const [path, text] = process.argv.slice(2);
  const { folder, limitFile, usageFile } = JSON.parse(text);
  const worker = new Worker(new URL(import.meta.url), { workerData: path });
  await once(worker, "message");
  const { memory } = planLoad(await openCheckpoint(path), { threads: 2 });
  const used = Number(readFileSync(join(folder, usageFile), "utf8"));
  writeFileSync(join(folder, limitFile), String(used + Math.round(1.5 * (memory.requiredBytes + memory.slackBytes))));
  worker.postMessage("go");
  const [own, [other]] = await Promise.all([outcome(path), once(worker, "message")]);
  console.log(JSON.stringify([own, other]));
  await worker.terminate();
} else {
  await openCheckpoint(workerData);
  parentPort.postMessage("ready");
  await once(parentPort, "message");
  parentPort.postMessage(await outcome(workerData));
}`;

it("of two threads that load at once into a group with memory for one, one is refused and none is killed", async (context) => {
  const group = memoryGroup(context);
  const { path } = written(false);
  const settings = { folder: group.folder, limitFile: limitFile(group.version), usageFile: usageFile(group.version) };
  const { code, signal, stdout, stderr } = await runNode(atOnce, { under: group.under, args: [path, JSON.stringify(settings)] });
  expect({ code, signal, stderr, killed: group.killed() }).toEqual({ code: 0, signal: null, stderr: "", killed: 0 });
  const outcomes = (JSON.parse(stdout) as [string, unknown][]).sort();
  expect(outcomes.map(([what]) => what)).toEqual(["ERR_MEMORY_WOULD_NOT_FIT", "loaded"]);
});

/** Loads one after the other, with memory for one and a half; the pages of each are kept. */
const oneAfterTheOther = `
import { writeFileSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { keptPageBytes, loadCheckpoint, openCheckpoint, planLoad } from "modelexpress-client";
const [path, text] = process.argv.slice(2);
const { folder, limitFile, usageFile } = JSON.parse(text);
const checkpoint = await openCheckpoint(path);
const { memory } = planLoad(checkpoint, { threads: 2 });
const used = Number(readFileSync(join(folder, usageFile), "utf8"));
writeFileSync(join(folder, limitFile), String(used + Math.round(1.5 * (memory.requiredBytes + memory.slackBytes))));
const told = [];
for (const keeps of [true, true, false, true]) {
  const model = await loadCheckpoint(checkpoint, { threads: 2, ...(keeps ? { keepPages: { maxBytes: 2 ** 40, idleMs: 3_600_000 } } : {}) });
  const { reusedBytes } = model.report.memory;
  const inUse = keptPageBytes() > 0;
  await model.close();
  told.push([reusedBytes > 0, inUse, keptPageBytes() > 0]);
}
console.log(JSON.stringify(told));`;

it("pages that are kept count as available, and give way to a load that takes none of them", async (context) => {
  const group = memoryGroup(context);
  const { path } = written(false);
  const settings = { folder: group.folder, limitFile: limitFile(group.version), usageFile: usageFile(group.version) };
  const { code, signal, stdout, stderr } = await runNode(oneAfterTheOther, { under: group.under, args: [path, JSON.stringify(settings)] });
  expect({ code, signal, stderr, killed: group.killed() }).toEqual({ code: 0, signal: null, stderr: "", killed: 0 });
  const [first, second, plain, last] = JSON.parse(stdout);
  // Some of the pages are taken, some are kept meanwhile, some are kept after the close.
  expect([first, second]).toEqual([
    [false, false, true],
    [true, false, true],
  ]);
  expect(plain[0]).toBe(false);
  expect(last[2]).toBe(true);
});

describeNixl("in a control group just large enough for the plan, NIXL", (library) => {
  it("reads, or is refused", { timeout: 60_000 }, async (context) => {
    const { refused } = await loadWithin(context, { load: { driver: "nixl" }, env: { MX_NIXL_LIBRARY: library, NIXL_LOG_LEVEL: "FATAL" } });
    expect(refused).toBeGreaterThan(0);
  });
});
