import { describe, expect, it } from "vitest";
import type { DriverName } from "../../src/envs.js";
import { loadCheckpoint } from "../../src/loader/load-checkpoint.js";
import { streamCheckpoint } from "../../src/loader/stream-checkpoint.js";
import { copyingDrivers, evict, failureOf, planFaults, sleep, writeCheckpoint } from "../support/loading.js";
import { collectGarbage, type ProcessCounters, processCounters } from "../support/process-counters.js";

const MIB = 2 ** 20;
const tensors = { a: { dtype: "U8", shape: [8 * MIB] } } as const;

/**
 * Fewer mappings than this are no leak of the loads, which would leave one each: the C library
 * keeps stacks and heaps of threads that ended for the next ones.
 */
const mappingsOfHeap = 45;
/** Loads before anything is counted. */
const warmUps = 20;

/**
 * The counters, once threads that are about to end have ended and views that are gone have been
 * swept, which the engine does on a thread of its own: when there are no more than `before`, or as
 * many as at the last look.
 */
async function settledCounters(before?: ProcessCounters): Promise<ProcessCounters> {
  let last = processCounters();
  for (let look = 0; look < 100; look++) {
    await sleep(20);
    await collectGarbage();
    const now = processCounters();
    const { threads, descriptors, mappings } = before ?? last;
    if (now.threads <= threads && now.descriptors <= descriptors && now.mappings < mappings + mappingsOfHeap) return now;
    last = now;
  }
  return last;
}

type Failure = (path: string, driver: DriverName) => Promise<unknown>;

const failures: Readonly<Record<string, Failure>> = {
  "a read fails": async (path, driver) => {
    planFaults({ nth: 3, errno: 5 });
    return failureOf(loadCheckpoint(path, { driver, maxChunkBytes: MIB }));
  },
  "it is late": async (path, driver) => {
    planFaults({ nth: 0, stallMs: 4 });
    return failureOf(loadCheckpoint(path, { driver, maxChunkBytes: MIB, timeoutMs: 3 }));
  },
  "it is aborted": async (path, driver) => {
    planFaults({ nth: 0, stallMs: 4 });
    const controller = new AbortController();
    setTimeout(() => controller.abort(), 3);
    return failureOf(loadCheckpoint(path, { driver, maxChunkBytes: MIB, signal: controller.signal }));
  },
  "onProgress throws": (path, driver) =>
    failureOf(
      loadCheckpoint(path, {
        driver,
        onProgress: () => {
          throw new Error("no");
        },
      }),
    ),
  "a stream fails": async (path, driver) => {
    planFaults({ nth: 2, errno: 5 });
    return failureOf(streamCheckpoint(path, { driver, maxBytes: 8 * MIB, maxChunkBytes: MIB }).next());
  },
};

describe.each(copyingDrivers)("fifty loads in a row by the driver %s that fail", (driver) => {
  it.each(Object.entries(failures))("because %s leave no memory, descriptor, mapping or thread", async (_, fail) => {
    const path = writeCheckpoint(tensors);
    evict(path);
    const failAndSettle = async () => {
      const reason = (await fail(path, driver)) as { settled?: Promise<void> };
      await reason.settled;
    };
    for (let round = 0; round < warmUps; round++) await failAndSettle();
    const before = await settledCounters();
    for (let round = 0; round < 50; round++) await failAndSettle();
    const after = await settledCounters(before);
    expect(after.descriptors).toBeLessThanOrEqual(before.descriptors);
    expect(after.threads).toBeLessThanOrEqual(before.threads);
    // Of 400 MiB and fifty arenas.
    expect(after.mappings - before.mappings).toBeLessThan(mappingsOfHeap);
    expect(after.residentBytes - before.residentBytes).toBeLessThan(40 * MIB);
  });
});

describe("a hundred and fifty loads in a row that succeed", () => {
  it.each([...copyingDrivers, "map"] as const)("by the driver %s leave nothing either", async (driver) => {
    const path = writeCheckpoint(tensors);
    const load = async () => {
      await using model = await loadCheckpoint(path, { driver });
      return model.tensors.get("a")?.bytes()[0];
    };
    for (let round = 0; round < warmUps; round++) await load();
    const before = await settledCounters();
    for (let round = 0; round < 150; round++) await load();
    const after = await settledCounters(before);
    expect(after.descriptors).toBeLessThanOrEqual(before.descriptors);
    expect(after.threads).toBeLessThanOrEqual(before.threads);
    expect(after.mappings - before.mappings).toBeLessThan(100);
    expect(after.residentBytes - before.residentBytes).toBeLessThan(40 * MIB);
  });
});
