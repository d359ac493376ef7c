/**
 * Times malloc + free from TypeScript over a backend in JavaScript that does nothing. Prints one
 * line of JSON, the median of several rounds. Needs the built package (`npm run build`).
 */
import { VmmArena } from "../../dist/arena/arena.js";

const pairs = 300_000;
const rounds = 15;

class EmptyBackend {
  allocationGranularity() {
    return 2 * 1024 * 1024;
  }
  reserve() {
    return 0x10_0000_0000_0000n;
  }
  allocate() {
    return 1n;
  }
  deallocate() {}
  releaseReserve() {}
}

function nsPerPair() {
  const arena = new VmmArena({ backend: new EmptyBackend() });
  const begin = process.hrtime.bigint();
  for (let pair = 0; pair < pairs; pair++) arena.free(arena.malloc(1 << 20));
  const ns = Number(process.hrtime.bigint() - begin);
  if (arena.liveAllocationCount !== 0 || arena.usedBytes !== pairs * arena.granularity) throw new Error("the arena miscounts");
  arena.close();
  return ns / pairs;
}

nsPerPair();
const measured = Array.from({ length: rounds }, nsPerPair).sort((a, b) => a - b);
const median = measured[Math.floor(rounds / 2)];
console.log(
  JSON.stringify({
    bench: "arena-typescript",
    pairs,
    rounds,
    nsPerPair: Number(median.toFixed(1)),
    pairsPerSecond: Math.round(1e9 / median),
  }),
);
