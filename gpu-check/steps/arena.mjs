// The arena on the device: granularity, time of an allocation, which handles its memory got.
import { subscribe } from "node:diagnostics_channel";
import { product } from "../support.mjs";

export default async function arenaStep({ device, answer, open }) {
  const { cudaBackend, VmmArena } = await product();
  subscribe("modelexpress", (message) => {
    if (message.event.startsWith("cuda.")) answer("event", message);
  });
  const arena = open(new VmmArena({ backend: cudaBackend({ device }) }));
  answer("arena", { granularity: arena.granularity, totalBytes: arena.totalBytes });
  for (const bytes of [2 ** 21, 2 ** 27]) {
    const begin = performance.now();
    for (let pair = 0; pair < 100; pair++) arena.free(arena.malloc(bytes));
    answer("pair", { bytes, microseconds: ((performance.now() - begin) * 1000) / 100 });
  }
  const kept = [1, 2 ** 21, 3 * 2 ** 21].map((bytes) => arena.malloc(bytes));
  answer("live", { count: arena.liveAllocationCount, mappedBytes: arena.mappedBytes });
  for (const address of kept) arena.free(address);
}
