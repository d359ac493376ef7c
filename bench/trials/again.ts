/**
 * A load, its close, a pause in which the host of a virtual machine takes free memory back, and the
 * load again, which is timed.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { importBuilt } from "../paths.js";
import { comparedBytes } from "./compare.js";
import { firstCall, peakBytes, prepareMachine, printFigures, readJob } from "./job.js";

/** Free pages are given back to the host some seconds after they were freed. */
const pauseMs = 10_000;

const job = readJob();
const { loadCheckpoint } = await importBuilt<typeof import("../../src/index.js")>("index.js");
const options = job.settings.keepPages ? { keepPages: { maxBytes: 2 ** 40 } } : {};
await firstCall(async (path) => (await loadCheckpoint(path, options)).close());
prepareMachine(job);

const first = await loadCheckpoint(job.path, options);
await first.close();
await sleep(pauseMs);

const start = performance.now();
const model = await loadCheckpoint(job.path, options);
const loaded = performance.now();
const bytes = comparedBytes(job, model);
const { times, memory, hugePageBytes } = model.report;
const closing = performance.now();
await model.close();
printFigures({
  seconds: (loaded - start) / 1000,
  firstSeconds: first.report.times.totalMs / 1000,
  closeSeconds: (performance.now() - closing) / 1000,
  transferSeconds: times.transferMs / 1000,
  bytes,
  reusedBytes: memory.reusedBytes,
  hugePageBytes: hugePageBytes ?? -1,
  peakBytes: peakBytes(),
});
