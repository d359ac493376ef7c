import { getEventListeners } from "node:events";
import { describe, expect, it } from "vitest";
import { errorOf } from "../../src/errors.js";
import type { TransferSummary } from "../../src/native/addon.js";
import { type Deferred, deferred } from "../../src/transfer/deferred.js";
import type { Transfer } from "../../src/transfer/driver.js";
import { abandon, awaitTransfer, within } from "../../src/transfer/waiting.js";
import { collectEvents } from "../support/events.js";
import { errorFrom, failureOf, sleep } from "../support/loading.js";

const summary: TransferSummary = {
  bufferedBytes: new Float64Array(1),
  cachedBytes: [0],
  directBytes: new Float64Array(1),
  fallback: [""],
  reads: 1,
  directByThreads: new Uint8Array(1),
  unkept: new Uint8Array(1),
};

interface Made {
  readonly transfer: Transfer;
  readonly done: Deferred<TransferSummary>;
  readonly settled: Deferred<void>;
  readonly calls: string[];
}

/** A transfer whose course the test decides. */
function made(bytes = 0): Made {
  const [done, settled] = [deferred<TransferSummary>(), deferred<void>()];
  const calls: string[] = [];
  const transfer = { done: done.promise, settled: settled.promise, progressBytes: () => bytes, abort: () => void calls.push("abort") };
  return { transfer, done, settled, calls };
}

describe("awaitTransfer", () => {
  it("resolves when all is in place and nothing is in flight, and cleans nothing up", async () => {
    const { transfer, done, settled, calls } = made();
    let resolved = false;
    const waiting = awaitTransfer(transfer, { totalBytes: 1 }, () => calls.push("clean-up"));
    waiting.then(() => {
      resolved = true;
    });
    done.resolve(summary);
    await sleep(5);
    expect(resolved).toBe(false);
    settled.resolve();
    expect(await waiting).toBe(summary);
    expect(calls).toEqual([]);
  });

  it("at a failure aborts, waits for the other reads, and cleans up, before the caller learns of it", async () => {
    const { transfer, done, settled, calls } = made();
    const failure = new Error("EIO");
    const waiting = failureOf(awaitTransfer(transfer, { totalBytes: 1 }, () => calls.push("clean-up")));
    done.reject(failure);
    await sleep(5);
    expect(calls).toEqual(["abort"]);
    settled.resolve();
    expect(await waiting).toBe(failure);
    expect(calls).toEqual(["abort", "clean-up"]);
  });

  it("does not wait long for reads that are stuck: `settled` tells of the clean-up", async () => {
    const { transfer, done, settled, calls } = made();
    const failure = errorOf("ERR_TRANSFER_READ", "EIO");
    done.reject(failure);
    const begun = performance.now();
    await failureOf(awaitTransfer(transfer, { totalBytes: 1 }, () => calls.push("clean-up")));
    expect(performance.now() - begun).toBeLessThan(250);
    expect(calls).toEqual(["abort"]);
    settled.resolve();
    await failure.settled;
    expect(calls).toEqual(["abort", "clean-up"]);
  });

  it("lets no failure of the clean-up hide the first error", async () => {
    const { transfer, done, settled } = made();
    const events = collectEvents();
    const [failure, second] = [errorOf("ERR_TRANSFER_READ", "EIO"), new Error("cannot unmap")];
    done.reject(failure);
    settled.resolve();
    const rejection = await failureOf(
      awaitTransfer(transfer, { totalBytes: 1 }, () => {
        throw second;
      }),
    );
    expect(rejection).toBe(failure);
    await failure.settled;
    expect(events).toEqual([{ event: "transfer.clean-up-failed", error: second, after: failure }]);
  });

  it("looks at an abort first, even when all is in place", async () => {
    const { transfer, done, settled, calls } = made();
    done.resolve(summary);
    settled.resolve();
    const signal = AbortSignal.abort("late");
    const error = await errorFrom(awaitTransfer(transfer, { totalBytes: 1, signal }, () => calls.push("clean-up")));
    expect([error.code, error.cause]).toEqual(["ERR_ABORTED", "late"]);
    expect(calls).toEqual(["abort", "clean-up"]);
    expect(getEventListeners(signal, "abort")).toEqual([]);
  });

  it("says how far it came when it is late; a deadline that is past is late at once", async () => {
    const { transfer, settled } = made(30);
    settled.resolve();
    const error = await errorFrom(awaitTransfer(transfer, { totalBytes: 100, deadline: performance.now() - 1, timeoutMs: 5 }, () => {}));
    expect(error).toMatchObject({ code: "ERR_TRANSFER_TIMEOUT", bytes: 30, totalBytes: 100, timeoutMs: 5 });
    expect(error.message).toBe("30 of 100 bytes were in place after 5 ms");
  });

  it("tells of progress no more once it is over", async () => {
    const { transfer, done, settled } = made(1);
    let calls = 0;
    const onProgress = () => {
      calls++;
    };
    const waiting = failureOf(awaitTransfer(transfer, { totalBytes: 100, onProgress }, () => {}));
    await sleep(120);
    expect(calls).toBeGreaterThan(0);
    const before = calls;
    done.reject(new Error("EIO"));
    await waiting;
    await sleep(120);
    expect(calls).toBe(before);
    settled.resolve();
  });
});

describe("abandon", () => {
  it("aborts all transfers and cleans up once after the last", async () => {
    const [one, other] = [made(), made()];
    const cleaned: string[] = [];
    const reason = new Error("r");
    const abandoned = abandon([one.transfer, other.transfer], reason, () => cleaned.push("clean-up"));
    expect([...one.calls, ...other.calls]).toEqual(["abort", "abort"]);
    one.settled.resolve();
    await sleep(5);
    expect(cleaned).toEqual([]);
    other.settled.resolve();
    expect(await abandoned).toBe(reason);
    expect(cleaned).toEqual(["clean-up"]);
  });

  it("of nothing cleans up", async () => {
    const cleaned: string[] = [];
    expect(await abandon([], "reason", () => cleaned.push("clean-up"))).toBe("reason");
    expect(cleaned).toEqual(["clean-up"]);
  });
});

describe("within", () => {
  it("tells whether a promise came in time", async () => {
    expect(await within(Promise.resolve(), 1000)).toBe(true);
    expect(await within(new Promise(() => {}), 1)).toBe(false);
    expect(await failureOf(within(Promise.reject("no"), 1000))).toBe("no");
  });
});
