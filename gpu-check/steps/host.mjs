// The checkpoint into host memory, from the disk and from the page cache; its digests are what
// every load to the device must equal.
import { existsSync } from "node:fs";
import { checkpointFiles, checkpointFolder, evict, keepDigests, product, toldOf } from "../support.mjs";

export default async function host(options) {
  const { answer, bytes } = options;
  const { loadCheckpoint } = await product();
  const path = checkpointFolder(options);
  if (!existsSync(path)) {
    const { writeSample } = await import("../../dist/sample/write-sample.js");
    await writeSample(path, { shape: "llama", bytes, shards: 4, seed: 1 });
  }
  const dropped = evict(checkpointFiles(options));
  for (const [cached, driver] of [
    [!dropped, "auto"],
    [true, "pread"],
    [true, "auto"],
  ]) {
    const model = await loadCheckpoint(path, { driver });
    if (driver === "pread") keepDigests(options, await model.digest());
    answer("load", { expectedCached: cached, driver, ...toldOf(model.report) });
    await model.close();
  }
}
