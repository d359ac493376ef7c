/**
 * Delay of the event loop while a checkpoint is opened and loaded again and again, for at least
 * `spanMs`; that of the openings alone apart.
 */
import { monitorEventLoopDelay } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { importBuilt } from "../paths.js";
import { prepareMachine, printFigures, readJob } from "./job.js";

const spanMs = 2000;
const job = readJob();
const { loadCheckpoint, openCheckpoint } = await importBuilt<typeof import("../../src/index.js")>("index.js");
(await importBuilt<typeof import("../../src/native/load.js")>("native/load.js")).addon();
prepareMachine(job);

const histogram = monitorEventLoopDelay({ resolution: 1 });
histogram.enable();
await sleep(200);
const idle = histogram.percentile(99);
histogram.reset();
let openMax = 0;
const start = performance.now();
let loads = 0;
let bytes = 0;
while (performance.now() - start < spanMs) {
  // A histogram of its own each time: one that is enabled again counts the pause.
  const opening = monitorEventLoopDelay({ resolution: 1 });
  opening.enable();
  const checkpoint = await openCheckpoint(job.path);
  // A block at the very end shows only at the next tick of the histogram's timer.
  await sleep(2);
  opening.disable();
  openMax = Math.max(openMax, opening.max);
  const model = await loadCheckpoint(checkpoint);
  bytes = model.report.bytes;
  await model.close();
  loads++;
}
await sleep(5);
histogram.disable();
printFigures({
  seconds: (performance.now() - start) / 1000 / loads,
  loads,
  bytes,
  p99Ms: histogram.percentile(99) / 1e6,
  maxMs: histogram.max / 1e6,
  openMaxMs: openMax / 1e6,
  idleP99Ms: idle / 1e6,
  samples: histogram.count,
});
