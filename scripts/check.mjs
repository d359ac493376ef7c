// Format, lint, types, package: everything that is checked without running the product. Each check
// is told with its outcome.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { addonTypes } from "./addon-types.mjs";
import { build } from "./build.mjs";
import { bin, isMain, main, root, run } from "./process.mjs";

const native = { cwd: join(root, "native") };

const checks = [
  ["TypeScript format and lint (biome)", bin("biome"), ["check", "--error-on-warnings"]],
  ["Rust format (rustfmt)", "cargo", ["fmt", "--all", "--check"], native],
  [
    "Rust lint (clippy)",
    "cargo",
    ["clippy", "--workspace", "--lib", "--examples", "--tests", "--locked", "--quiet", "--", "-D", "warnings"],
    native,
  ],
  ["types (tsc)", bin("tsc"), ["--noEmit", "-p", "tsconfig.json"]],
  // The build has written them anew.
  ["types of the addon as committed (git)", "git", ["diff", "--exit-code", "--", addonTypes]],
  ["package (publint)", bin("publint"), ["--strict", "--pack", "npm"]],
];

export async function check() {
  await build();
  const outcomes = [];
  for (const [name, command, args, options] of checks) {
    console.log(`\n-- ${name}`);
    outcomes.push([name, (await run(command, args, options)) === 0]);
  }
  console.log();
  for (const [name, ok] of outcomes) console.log(`${ok ? "ok    " : "FAILED"}  ${name}`);
  const passed = outcomes.filter(([, ok]) => ok).length;
  const failed = outcomes.length - passed;
  mkdirSync(join(root, ".cache"), { recursive: true });
  writeFileSync(join(root, ".cache/check-results.json"), JSON.stringify({ passed, failed }));
  return failed > 0 ? 1 : 0;
}

if (isMain(import.meta.url)) await main(check);
