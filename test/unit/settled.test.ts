import { describe, expect, it } from "vitest";
import { deferred } from "../../src/transfer/deferred.js";
import { keepingAlive, withSettled } from "../../src/transfer/settled.js";
import { failureOf, sleep } from "../support/loading.js";

type Settled = { settled: Promise<void> };

/** Whether a promise is decided after the tasks that are due now. */
async function isPending(promise: Promise<unknown>): Promise<boolean> {
  let pending = true;
  promise.finally(() => {
    pending = false;
  });
  await sleep(0);
  return pending;
}

describe("withSettled", () => {
  it("gives back the very reason, with a property that does not show", async () => {
    const reads = deferred<void>();
    const reason = new Error("r");
    expect(withSettled(reason, reads.promise)).toBe(reason);
    expect(Object.keys(reason)).toEqual([]);
    const { settled } = reason as Error & Settled;
    expect(await isPending(settled)).toBe(true);
    reads.resolve();
    expect(await settled).toBeUndefined();
  });

  it("adds promises up", async () => {
    const [first, second] = [deferred<void>(), deferred<void>()];
    const reason = new Error("r");
    withSettled(reason, first.promise);
    withSettled(reason, second.promise);
    const { settled } = reason as Error & Settled;
    second.resolve();
    expect(await isPending(settled)).toBe(true);
    first.resolve();
    await settled;
  });

  it.each([["text"], [5], [null], [undefined], [Object.freeze(new Error("frozen"))]])("leaves %s as it is", (reason) => {
    expect(withSettled(reason, Promise.resolve())).toBe(reason);
    if (reason instanceof Error) expect(reason).not.toHaveProperty("settled");
  });

  it("leaves a property that cannot be changed", () => {
    const reason = Object.defineProperty(new Error("r"), "settled", { value: "mine" });
    withSettled(reason, Promise.resolve());
    expect(reason).toHaveProperty("settled", "mine");
  });

  it("takes in a promise that the reason had before", async () => {
    const [own, reads] = [deferred<void>(), deferred<void>()];
    const reason = Object.assign(new Error("r"), { settled: own.promise });
    withSettled(reason, reads.promise);
    reads.resolve();
    expect(await isPending(reason.settled)).toBe(true);
    own.resolve();
    await reason.settled;
  });
});

describe("keepingAlive", () => {
  it("is the promise in value and failure", async () => {
    expect(await keepingAlive(Promise.resolve(7))).toBe(7);
    expect(await failureOf(keepingAlive(Promise.reject("no")))).toBe("no");
  });
});
