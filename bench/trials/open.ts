/**
 * Opening: all headers validated whole; and again with shape and dtype of every tensor read in
 * JavaScript. Repeated in one process.
 */
import { importBuilt } from "../paths.js";
import { median } from "../statistics.js";
import { printFigures, readJob } from "./job.js";

const job = readJob();
const { openCheckpoint } = await importBuilt<typeof import("../../src/index.js")>("index.js");
const open: number[] = [];
const walk: number[] = [];
let tensors = 0;
let dims = 0;
for (let repeat = 0; repeat < (job.settings.repeats ?? 1); repeat++) {
  const start = performance.now();
  const checkpoint = await openCheckpoint(job.path);
  const opened = performance.now();
  tensors = 0;
  for (const tensor of checkpoint.tensors.values()) {
    dims += tensor.shape.length + tensor.dtype.length;
    tensors++;
  }
  const walked = performance.now();
  if (tensors !== checkpoint.tensorCount) throw new Error(`${tensors} tensors walked, ${checkpoint.tensorCount} counted`);
  open.push((opened - start) / 1000);
  walk.push((walked - start) / 1000);
}
printFigures({
  seconds: median(open),
  leastSeconds: Math.min(...open),
  firstSeconds: open[0] ?? Number.NaN,
  walkSeconds: median(walk),
  leastWalkSeconds: Math.min(...walk),
  tensors,
  dims,
  bytes: 0,
});
