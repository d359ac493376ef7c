// Builds, brings the real NIXL, then runs every test: the Rust ones, the arena's under loom, the
// TypeScript ones. Ends with the sums, also written to .cache/test-results.json. Under CI=true a
// skipped test counts as failed.
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "./build.mjs";
import { fetchNixl } from "./nixl.mjs";
import { bin, isMain, main, root, run, Stop } from "./process.mjs";

const native = join(root, "native");
const cache = join(root, ".cache");

export async function test() {
  await build();
  bringNixl();
  const results = { rust: await cargo(), loom: await loom(), typescript: await vitest() };
  const sum = (key) => Object.values(results).reduce((total, counts) => total + counts[key], 0);
  const total = { passed: sum("passed"), failed: sum("failed"), skipped: sum("skipped"), unavailable: results.typescript.unavailable };
  writeFileSync(join(cache, "test-results.json"), `${JSON.stringify({ ...results, total }, null, 2)}\n`);
  console.log();
  for (const [name, counts] of Object.entries(results)) console.log(`${name.padEnd(12)}${tell(counts)}`);
  console.log(`${"total".padEnd(12)}${tell(total)}`);
  const skipFails = process.env.CI === "true" && total.skipped > 0;
  if (skipFails) console.log("A skipped test is a failure under CI=true.");
  return total.failed > 0 || total.passed === 0 || skipFails ? 1 : 0;
}

const tell = ({ passed, failed, skipped, unavailable = 0 }) =>
  `${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ""}${unavailable > 0 ? `, ${unavailable} not available here` : ""}`;

/** Without it the tests that need it are skipped. */
function bringNixl() {
  try {
    fetchNixl();
  } catch (error) {
    const problem = `NIXL cannot be had: ${error.message}`;
    if (process.env.CI === "true") throw new Stop(problem, 69);
    console.log(`${problem}\nThe tests that need it are skipped.`);
  }
}

function cargo() {
  // mx-node has no tests of its own: outside of Node its calls have nothing to link to.
  return cargoTest(["-p", "mx-core"], {});
}

/**
 * The arena under every interleaving that loom can make; a build of its own, as loom replaces the
 * atomics.
 */
function loom() {
  const env = { RUSTFLAGS: "--cfg loom", CARGO_TARGET_DIR: join(targetDir(), "loom"), CARGO_PROFILE_TEST_DEBUG: "0" };
  return cargoTest(["-p", "mx-core", "--lib", "loom"], env);
}

function targetDir() {
  return process.env.CARGO_TARGET_DIR ?? join(native, "target");
}

async function cargoTest(args, env) {
  let output = "";
  const code = await run("cargo", ["test", "--locked", "--no-fail-fast", ...args], { cwd: native, env, tee: (chunk) => (output += chunk) });
  const counts = { passed: 0, failed: 0, skipped: 0 };
  for (const [, passed, failed, ignored] of output.matchAll(/^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored/gm)) {
    counts.passed += Number(passed);
    counts.failed += Number(failed);
    counts.skipped += Number(ignored);
  }
  // A build that fails, a crash, or a filter that finds nothing: no test reported it.
  if ((code !== 0 && counts.failed === 0) || (code === 0 && counts.passed === 0)) counts.failed += 1;
  return counts;
}

async function vitest() {
  mkdirSync(cache, { recursive: true });
  const report = join(cache, "vitest.json");
  rmSync(report, { force: true });
  const code = await run(bin("vitest"), ["run", "--reporter=default", "--reporter=json", `--outputFile.json=${report}`]);
  if (!existsSync(report)) return { passed: 0, failed: 1, skipped: 0 };
  const { numPassedTests, numFailedTests, numPendingTests, numTodoTests, testResults } = JSON.parse(readFileSync(report, "utf8"));
  // What this machine cannot give, a kernel feature or a privilege, is told apart from what a
  // registry could have given.
  const unavailable = testResults.flatMap(({ assertionResults }) => assertionResults).filter(({ meta }) => meta?.unavailable !== undefined);
  for (const { fullName, meta } of unavailable) console.log(`not available here: ${fullName}: ${meta.unavailable}`);
  const skipped = numPendingTests + numTodoTests - unavailable.length;
  const counts = { passed: numPassedTests, failed: numFailedTests, skipped, unavailable: unavailable.length };
  // Files that could not be run at all, and errors outside of tests, have no failed test.
  const broken = testResults.filter(
    ({ status, assertionResults }) => status === "failed" && assertionResults.every((t) => t.status !== "failed"),
  );
  counts.failed += broken.length;
  if (code !== 0 && counts.failed === 0) counts.failed += 1;
  return counts;
}

if (isMain(import.meta.url)) await main(test);
