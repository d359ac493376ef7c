/**
 * One load while `spawns` child processes are started, one after the other, and the event loop's
 * delay meanwhile.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { importBuilt } from "../paths.js";
import { firstCall, prepareMachine, printFigures, readJob } from "./job.js";

const job = readJob();
const { loadCheckpoint } = await importBuilt<typeof import("../../src/index.js")>("index.js");
const { spawns = 0 } = job.settings;
await firstCall(async (path) => (await loadCheckpoint(path)).close());
await once(spawn("/bin/true"), "exit");
prepareMachine(job);

let loading = true;
/** Greatest time that a call of `spawn` took. */
let spawnMs = 0;
let spawnedInLoad = 0;

async function startProcesses(): Promise<void> {
  for (let count = 0; count < spawns; count++) {
    const before = performance.now();
    const child = spawn("/bin/true");
    spawnMs = Math.max(spawnMs, performance.now() - before);
    if (loading) spawnedInLoad++;
    await once(child, "exit");
  }
}

const histogram = monitorEventLoopDelay({ resolution: 1 });
histogram.enable();
const start = performance.now();
const starting = startProcesses();
const model = await loadCheckpoint(job.path);
const loaded = performance.now();
loading = false;
await sleep(2);
histogram.disable();
await starting;
const { bytes, hugePageBytes } = model.report;
await model.close();
printFigures({
  seconds: (loaded - start) / 1000,
  bytes,
  maxMs: histogram.max / 1e6,
  spawnMs,
  spawnedInLoad,
  hugePageBytes: hugePageBytes ?? -1,
});
