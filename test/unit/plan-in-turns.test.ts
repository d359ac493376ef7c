import { afterEach, describe, expect, it, vi } from "vitest";
import { planInTurns } from "../../src/loader/plan-in-turns.js";
import { planLoad } from "../../src/plan/plan-load.js";
import { madeSource } from "../support/made-source.js";

const availableMemory = { bytes: null, limitedBy: "unknown" };
const shards = 50;
const source = madeSource(Array.from({ length: shards }, (_, shard) => ({ tensors: [{ name: `t${shard}`, length: 100 + shard }] })));

/** Turns of the event loop while a promise is on its way. */
async function turnsDuring(work: Promise<unknown>): Promise<number> {
  let turns = 0;
  let over = false;
  const count = () => {
    turns++;
    if (!over) setImmediate(count);
  };
  setImmediate(count);
  await work;
  over = true;
  return turns;
}

describe("planning in turns of the event loop", () => {
  afterEach(() => vi.restoreAllMocks());

  it("lets the loop turn where the steps take long, and gives the same plan", async () => {
    let now = 0;
    vi.spyOn(performance, "now").mockImplementation(() => {
      now += 5;
      return now;
    });
    const planning = planInTurns(source, { availableMemory }, (plan) => plan);
    expect(await turnsDuring(planning)).toBeGreaterThanOrEqual(shards);
    expect(JSON.stringify(await planning)).toBe(JSON.stringify(planLoad(source, { availableMemory })));
  });

  it("holds no turn back where all of it is quick", async () => {
    vi.spyOn(performance, "now").mockReturnValue(0);
    expect(await turnsDuring(planInTurns(source, { availableMemory }, (plan) => plan))).toBe(0);
  });

  it("rejects with what planLoad throws", async () => {
    await expect(planInTurns(source, { include: "absent" }, (plan) => plan)).rejects.toMatchObject({ code: "ERR_PLAN_TENSOR_UNKNOWN" });
  });
});
