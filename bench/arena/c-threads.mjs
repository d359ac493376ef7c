/**
 * Times mx_malloc + mx_free, the symbols that the addon exports to C, from one and from two threads
 * of C, over a native backend that does nothing. Prints one line of JSON, the medians of several
 * rounds. Needs the built package (`npm run build`) and `cc`.
 */
import { execFileSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { addonPath } from "../../dist/native/addon-path.js";
import { addon } from "../../dist/native/load.js";

const pairs = 300_000;
const rounds = 15;
const device = 0;

const source = fileURLToPath(new URL("../../test/support/c-caller.c", import.meta.url));
const folder = fileURLToPath(new URL("../../.cache/bench", import.meta.url));
mkdirSync(folder, { recursive: true });
const program = `${folder}/c-caller.node`;
execFileSync("cc", ["-O2", "-shared", "-fPIC", "-pthread", "-o", program, source, "-ldl"]);
const c = { exports: {} };
process.dlopen(c, program);
const native = addon();
c.exports.open(addonPath());

function nsPerPair(threads) {
  const arena = native.createArena(native.openEmptyBackend(), 2 ** 44);
  native.setActiveArena(arena, device, (operation, failure) => {
    throw new Error(`${operation}: ${failure}`);
  });
  const [given, refused, ns] = c.exports.pairs(threads, 1 << 20, device, pairs);
  const { usedBytes, liveAllocationCount } = arena;
  if (refused > 0 || liveAllocationCount !== 0 || usedBytes !== given * arena.granularity) throw new Error("the arena miscounts");
  native.setActiveArena(null, device, () => {});
  return ns / given;
}

function measured(threads) {
  nsPerPair(threads);
  const found = Array.from({ length: rounds }, () => nsPerPair(threads)).sort((a, b) => a - b);
  const median = found[Math.floor(rounds / 2)];
  return { nsPerPair: Number(median.toFixed(1)), pairsPerSecond: Math.round(1e9 / median) };
}

console.log(JSON.stringify({ bench: "arena-c-threads", pairs, rounds, oneThread: measured(1), twoThreads: measured(2) }));
