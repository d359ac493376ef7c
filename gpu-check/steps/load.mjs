// The checkpoint to the device by one driver: nothing cached, three times, then from the page
// cache; bytes compared each time.
import { checkpointFiles, checkpointFolder, evict, expectedDigests, product, requireNixl, requireSame, toldOf } from "../support.mjs";

export default async function load(options) {
  const { name, device, answer } = options;
  const driver = name.slice("load-".length);
  if (driver === "nixl") await requireNixl();
  const { loadCheckpoint } = await product();
  const expected = expectedDigests(options);
  // The first load pays for contexts and libraries.
  for (let round = 0; round < 4; round++) {
    if (round < 3) evict(checkpointFiles(options));
    else await (await loadCheckpoint(checkpointFolder(options), { driver: "pread" })).close();
    const model = await loadCheckpoint(checkpointFolder(options), { device, driver });
    answer("load", { round, cached: round === 3, ...toldOf(model.report) });
    requireSame(expected, await model.digest());
    const begin = performance.now();
    await model.close();
    answer("close", { ms: performance.now() - begin });
  }
}
