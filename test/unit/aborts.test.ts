import { getEventListeners } from "node:events";
import { runInNewContext } from "node:vm";
import { expect, it } from "vitest";
import { isAbortSignal, onAbort } from "../../src/aborts.js";
import { loadCheckpoint } from "../../src/loader/load-checkpoint.js";
import { writeCheckpoint } from "../support/loading.js";
import { runNode } from "../support/run-node.js";

const tensors = { a: { dtype: "U8", shape: [100] } } as const;

it("onAbort calls once each who waits, by one listener, and takes it away with the last", () => {
  const { signal } = new AbortController();
  const forget = Array.from({ length: 1000 }, () => onAbort(signal, () => {}));
  expect(getEventListeners(signal, "abort")).toHaveLength(1);
  for (const each of forget) each();
  expect(getEventListeners(signal, "abort")).toEqual([]);
});

it("onAbort calls those who still wait, and those who come later at once", () => {
  const controller = new AbortController();
  const called: string[] = [];
  onAbort(controller.signal, () => called.push("first"));
  const forget = onAbort(controller.signal, () => called.push("second"));
  onAbort(controller.signal, () => called.push("third"));
  forget();
  forget();
  controller.abort();
  onAbort(controller.signal, () => called.push("late"));
  expect(called).toEqual(["first", "third", "late"]);
  onAbort(undefined, () => called.push("never"))();
  expect(called).toHaveLength(3);
});

it("what can serve as a signal is told by what it does", () => {
  expect(isAbortSignal(AbortSignal.abort())).toBe(true);
  expect(isAbortSignal({ aborted: false, addEventListener() {}, removeEventListener() {} })).toBe(true);
  for (const other of [undefined, null, "signal", {}, new EventTarget(), new AbortController()]) expect(isAbortSignal(other)).toBe(false);
});

it("a signal and options of another realm are taken by a load", async () => {
  const { signal } = new AbortController();
  const foreign = runInNewContext(
    "({ aborted: false, reason: undefined, throwIfAborted() {}, addEventListener: (...args) => signal.addEventListener(...args), removeEventListener: (...args) => signal.removeEventListener(...args) })",
    { signal },
  ) as AbortSignal;
  await using model = await loadCheckpoint(writeCheckpoint(tensors), { signal: foreign, include: runInNewContext("[/^a$/]") as RegExp[] });
  expect([...model.tensors.keys()]).toEqual(["a"]);
  expect(getEventListeners(signal, "abort")).toEqual([]);
});

it("one signal for a hundred loads at once prints nothing", async () => {
  const script = `
import { loadCheckpoint } from "modelexpress-client";
const { signal } = new AbortController();
const options = { signal, timeoutMs: 60_000 };
const models = await Promise.all(Array.from({ length: 100 }, () => loadCheckpoint(process.argv[2], options)));
await Promise.all(models.map((model) => model.close()));
console.log(models.length);`;
  const { code, stdout, stderr } = await runNode(script, { args: [writeCheckpoint(tensors)] });
  expect([code, stdout, stderr]).toEqual([0, "100\n", ""]);
});
