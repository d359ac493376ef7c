// Builds, and runs the tests that need neither network nor much time.
import { build, buildTestAddon } from "./build.mjs";
import { bin, isMain, main, run } from "./process.mjs";

export async function testUnit() {
  await build();
  await buildTestAddon();
  return run(bin("vitest"), ["run", "test/unit", "test/property"]);
}

if (isMain(import.meta.url)) await main(testUnit);
