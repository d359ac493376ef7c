import { expect, it } from "vitest";
import { writeCheckpoint } from "../support/loading.js";
import { runNode } from "../support/run-node.js";

const script = `
import { readFileSync } from "node:fs";
import { loadCheckpoint } from "modelexpress-client";
const [path, count] = process.argv.slice(2);
// Of what a load takes apart from its arena: the addon, V8's code.
const first = await loadCheckpoint(path);
const anonymousKib = () => Number(/^RssAnon:\\s+(\\d+)/m.exec(readFileSync("/proc/self/status", "utf8"))[1]);
const before = anonymousKib();
const models = [];
for (let n = 0; n < Number(count); n++) models.push(await loadCheckpoint(path));
console.log((anonymousKib() - before) / models.length);
for (const model of [first, ...models]) await model.close();
`;

/** KiB of memory for each of so many loads of a file with `bytes` bytes of tensors. */
async function kibOf(bytes: number, count: number): Promise<number> {
  const path = writeCheckpoint({ a: { dtype: "U8", shape: [bytes] } });
  const { code, stdout, stderr } = await runNode(script, { args: [path, String(count)], timeoutMs: 60_000 });
  expect([code, stderr]).toEqual([0, ""]);
  return Number(stdout);
}

it("a thousand models of 4 KiB take kilobytes each, not huge pages", { timeout: 60_000 }, async () => {
  expect(await kibOf(4096, 1000)).toBeLessThan(96);
});

it("a model a little above a huge page takes that and little more", async () => {
  const bytes = 2 * 2 ** 20 + 100_000;
  expect(await kibOf(bytes, 20)).toBeLessThan(bytes / 1024 + 256);
});
