// From the device back to the host: the largest tensor, compared.
import { checkpointFolder, expectedDigests, hex, product } from "../support.mjs";

export default async function copyBack(options) {
  const { device, answer, open } = options;
  const { loadCheckpoint } = await product();
  const model = open(await loadCheckpoint(checkpointFolder(options), { device, driver: "staged" }));
  const [largest] = [...model.tensors.values()].sort((a, b) => b.byteLength - a.byteLength);
  for (let round = 0; round < 3; round++) {
    const begin = performance.now();
    const copy = await largest.copyToHost();
    answer("copy", { round, bytes: copy.length, gigabytesPerSecond: copy.length / (performance.now() - begin) / 1e6 });
    if (hex(copy) !== expectedDigests(options).get(largest.name)) throw new Error(`tensor ${largest.name} differs after copyToHost()`);
  }
}
