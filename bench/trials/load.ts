/**
 * One load: from the call to the last byte in place; then, apart, the objects of all tensors, a
 * touch of every page, and the comparison.
 */
import { importBuilt } from "../paths.js";
import { comparedBytes } from "./compare.js";
import { firstCall, peakBytes, prepareMachine, printFigures, readJob } from "./job.js";

const job = readJob();
const { loadCheckpoint } = await importBuilt<typeof import("../../src/index.js")>("index.js");
// The addon is loaded at its first use; like a peer's shared library it belongs to the imports.
(await importBuilt<typeof import("../../src/native/load.js")>("native/load.js")).addon();
const { driver, plugin, threads, touch } = job.settings;
const options = { driver, plugin, threads };
await firstCall(async (path) => (await loadCheckpoint(path, options)).close());
prepareMachine(job);

const start = performance.now();
const model = await loadCheckpoint(job.path, options);
const loaded = performance.now();
const peak = peakBytes();

const objectsStart = performance.now();
const objects = [...model.tensors.values()];
const objectsEnd = performance.now();

let touched = 0;
if (touch) for (const tensor of objects) for (let at = 0, bytes = tensor.bytes(); at < bytes.length; at += 4096) touched += bytes[at] ?? 0;
const touchEnd = performance.now();

const bytes = comparedBytes(job, model);
if (bytes !== model.report.bytes) throw new Error(`${model.report.bytes} bytes reported, ${bytes} in the files`);
const { times, allocationBytes, hugePageBytes } = model.report;
await model.close();
printFigures({
  seconds: (loaded - start) / 1000,
  objectsSeconds: (objectsEnd - objectsStart) / 1000,
  touchSeconds: (touchEnd - objectsEnd) / 1000,
  openSeconds: times.openMs / 1000,
  planSeconds: times.planMs / 1000,
  allocateSeconds: times.allocateMs / 1000,
  transferSeconds: times.transferMs / 1000,
  bytes,
  peakBytes: peak,
  allocationBytes,
  hugePageBytes: hugePageBytes ?? -1,
  touched,
});
