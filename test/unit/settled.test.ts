import { describe, expect, it } from "vitest";
import { errorOf } from "../../src/errors.js";
import { deferred } from "../../src/transfer/deferred.js";
import { keepingAlive, withSettled } from "../../src/transfer/settled.js";
import { failureOf, sleep } from "../support/loading.js";

type Settled = { readonly settled: Promise<void> };

/** Whether a promise is decided after the tasks that are due now. */
async function isPending(promise: Promise<unknown>): Promise<boolean> {
  let pending = true;
  promise.finally(() => {
    pending = false;
  });
  await sleep(0);
  return pending;
}

const ours = () => errorOf("ERR_TRANSFER_READ", "r");

describe("withSettled", () => {
  it("gives back the very reason, with a property that does not show", async () => {
    const reads = deferred<void>();
    const reason = ours();
    expect(withSettled(reason, reads.promise)).toBe(reason);
    expect(Object.keys(reason)).not.toContain("settled");
    const { settled } = reason as Settled;
    expect(await isPending(settled)).toBe(true);
    reads.resolve();
    expect(await settled).toBeUndefined();
  });

  it("adds promises up", async () => {
    const [first, second] = [deferred<void>(), deferred<void>()];
    const reason = ours();
    withSettled(reason, first.promise);
    withSettled(reason, second.promise);
    const { settled } = reason as Settled;
    second.resolve();
    expect(await isPending(settled)).toBe(true);
    first.resolve();
    await settled;
  });

  it.each([["text"], [5], [null], [undefined], [new Error("the caller's")], [{ mine: true }]])(
    "leaves %s, which is not ours, as it is",
    (reason) => {
      expect(withSettled(reason, Promise.resolve())).toBe(reason);
      if (typeof reason === "object" && reason !== null) expect(reason).not.toHaveProperty("settled");
    },
  );
});

describe("keepingAlive", () => {
  it("is the promise in value and failure", async () => {
    expect(await keepingAlive(Promise.resolve(7))).toBe(7);
    expect(await failureOf(keepingAlive(Promise.reject("no")))).toBe("no");
  });
});
