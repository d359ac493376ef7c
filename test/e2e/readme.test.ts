import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { writeSample } from "../../src/sample/write-sample.js";
import { root, temporaryFolder } from "../support/folders.js";
import { runNode } from "../support/run-node.js";

it("the program of the README runs as it stands there", async () => {
  const folder = temporaryFolder();
  await writeSample(folder, { shape: "llama", bytes: 2 ** 20 });
  const [, program = ""] = /```js\n([\s\S]+?)```/.exec(readFileSync(join(root, "README.md"), "utf8")) ?? [];
  expect(program).toContain('"/models/Llama-3-8B"');
  const { code, stdout, stderr } = await runNode(program.replace("/models/Llama-3-8B", folder));
  expect([code, stderr]).toEqual([0, ""]);
  expect(stdout).toMatch(/^BF16 \[ 3261, 64 \] \d+n\n\d+ \d+ .+\n$/);
});
