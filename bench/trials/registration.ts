/**
 * Registers 3,000 tensors of one allocation with NIXL's plugin UCX: the arena once, all as one
 * list, or one by one. Timed from the call to the last registration; the median of several times.
 */
import { importBuilt } from "../paths.js";
import { printFigures, readJob } from "./job.js";

const tensors = 3000;
const tensorBytes = 2 ** 16;
const repeats = 15;
const { way } = readJob().settings;
const { NixlAgent, VmmArena, hostBackend } = await importBuilt<typeof import("../../src/index.js")>("index.js");

const arena = new VmmArena({ backend: hostBackend(), totalBytes: tensors * tensorBytes });
const base = arena.malloc(tensors * tensorBytes);
const agent = await NixlAgent.create({ name: "bench", plugins: { UCX: {} } });
const addresses = BigUint64Array.from({ length: tensors }, (_, row) => base + BigInt(row * tensorBytes));
const lengths = new Float64Array(tensors).fill(tensorBytes);

const ways = {
  arena: async () => [await arena.register(agent)],
  list: async () => [await agent.registerMemory(arena, { address: addresses, length: lengths })],
  // Without waiting for each: the agent's thread takes one after the other.
  each: () =>
    Promise.all(
      Array.from(addresses, (_, row) => {
        const pieces = { address: addresses.subarray(row, row + 1), length: lengths.subarray(row, row + 1) };
        return agent.registerMemory(arena, pieces);
      }),
    ),
};

const seconds: number[] = [];
for (let n = 0; n <= repeats; n++) {
  const start = performance.now();
  const registrations = await ways[way ?? "arena"]();
  const end = performance.now();
  // The first time code is compiled and the plugin sets itself up.
  if (n > 0) seconds.push((end - start) / 1000);
  for (const registration of registrations) await registration.close();
}
await agent.close();
arena.close();
printFigures({ seconds: seconds.sort((a, b) => a - b)[repeats >> 1] ?? Number.NaN, bytes: tensors * tensorBytes });
