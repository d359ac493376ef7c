// Builds the addon that test files load, .cache/test-addon.node: its reads can be planned to fail,
// and arithmetic is checked. Every run of the tests does so first.
import { join } from "node:path";
import { compileAddon, place } from "./build.mjs";
import { isMain, main, root } from "./process.mjs";

export async function buildTestAddon() {
  place(await compileAddon(["--features", "faults"]), join(root, ".cache/test-addon.node"));
}

if (isMain(import.meta.url)) await main(buildTestAddon);
