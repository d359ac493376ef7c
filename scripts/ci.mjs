// What .ci/run does: the checks, every test once, then the packed package installed elsewhere and
// used, also under the oldest and newer versions of Node, and by TypeScript; then the packages of
// every platform built, installed and used. Ends with the line "N passed, N failed": tests and
// checks together. What the machine lacks is skipped with the reason; under CI=true a skip is a
// failure.
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buildPlatforms } from "./build-platforms.mjs";
import { tryCommonJs, tryConsumers } from "./consumers.mjs";
import { capture, main, root, run, Stop } from "./process.mjs";
import { tryPlatforms } from "./try-platforms.mjs";

const strict = process.env.CI === "true";
const counts = { passed: 0, failed: 0 };

function count(name, problem) {
  console.log(problem === undefined ? `ok      ${name}` : `FAILED  ${name}: ${problem}`);
  counts[problem === undefined ? "passed" : "failed"] += 1;
}

function skip(name, reason) {
  console.log(`skipped ${name}: ${reason}`);
  if (strict) counts.failed += 1;
}

/**
 * Runs a script that leaves its own counts in a file; one that ends without them counts as one
 * failure.
 */
async function counted(script, file, key) {
  const path = join(root, ".cache", file);
  rmSync(path, { force: true });
  const code = await run(process.execPath, [`scripts/${script}`]);
  const found = existsSync(path) ? JSON.parse(readFileSync(path, "utf8")) : undefined;
  const { passed, failed, skipped = 0 } = (key === undefined ? found : found?.[key]) ?? { passed: 0, failed: 1 };
  counts.passed += passed;
  counts.failed += failed + (strict ? skipped : 0);
  if (code !== 0 && failed + skipped === 0) counts.failed += 1;
}

/** Checks that an installed copy of the package loads a file, by command and by import. */
function tryPackage(folder, node, label) {
  const file = join(folder, "checkpoint/model.safetensors");
  const command = capture(node, ["node_modules/.bin/mx", "load", file, "--digest", "--json"], { cwd: folder, timeout: 60_000 });
  count(`${label}: mx load`, command.code === 0 ? compare(JSON.parse(command.stdout).tensors.length) : explain(command));
  const script = join(folder, "import.mjs");
  writeFileSync(
    script,
    `import { loadCheckpoint } from "modelexpress-client";
     const model = await loadCheckpoint(process.argv[2]);
     let bytes = 0;
     for (const tensor of model.tensors.values()) bytes += tensor.bytes().length;
     if (bytes !== model.report.bytes) throw new Error(\`\${bytes} bytes, the report says \${model.report.bytes}\`);
     console.log(model.tensors.size);
     await model.close();`,
  );
  const imported = capture(node, [script, file], { cwd: folder, timeout: 60_000 });
  count(`${label}: import`, imported.code === 0 ? compare(Number(imported.stdout)) : explain(imported));
  const moving = join(folder, "moved-memory.mjs");
  copyFileSync(join(root, "scripts/moved-memory.mjs"), moving);
  const moved = capture(node, [moving, file], { cwd: folder, timeout: 60_000 });
  count(`${label}: memory moved out of views`, moved.code === 0 && moved.stdout === "kept\n" ? undefined : explain(moved));
  tryCommonJs(folder, node, label, count);
}

/** The sample that is tried has this many tensors. */
const sampleTensors = 21;
const compare = (tensors) => (tensors === sampleTensors ? undefined : `${tensors} tensors instead of ${sampleTensors}`);
const explain = ({ code, stdout, stderr }) => `exit code ${code}: ${(stderr || stdout).trim().slice(-500)}`;

async function ci() {
  await counted("check.mjs", "check-results.json");
  await counted("test.mjs", "test-results.json", "total");
  console.log();
  const folder = mkdtempSync(join(tmpdir(), "modelexpress-ci-"));
  try {
    await packAndTry(folder);
  } finally {
    rmSync(folder, { recursive: true });
  }
  await everyPlatform();
  console.log(`\n${counts.passed} passed, ${counts.failed} failed`);
  return counts.failed > 0 ? 1 : 0;
}

async function everyPlatform() {
  try {
    await buildPlatforms();
    count("the packages of every platform are built");
    tryPlatforms(count);
  } catch (thrown) {
    if (!(thrown instanceof Stop)) throw thrown;
    // 69: something is not to be had here, as the message says.
    if (thrown.exitCode === 69) skip("the packages of every platform", thrown.message);
    else count("the packages of every platform", thrown.message);
  }
}

async function packAndTry(folder) {
  const packed = capture("npm", ["pack", "--json", "--pack-destination", folder]);
  // The build that npm runs before packing may print in front of the JSON.
  const name = /"filename": "(.+?)"/.exec(packed.stdout)?.[1];
  count("npm pack", packed.code === 0 && name !== undefined ? undefined : explain(packed));
  if (name === undefined) return;
  writeFileSync(join(folder, "package.json"), '{ "private": true }\n');
  const installed = capture("npm", ["install", "--no-audit", "--no-fund", join(folder, name)], { cwd: folder });
  count("the package installs elsewhere", installed.code === 0 ? undefined : explain(installed));
  const sample = capture(process.execPath, ["node_modules/.bin/mx", "sample", "checkpoint", "--bytes", "1MiB"], { cwd: folder });
  count("the installed mx writes a sample", sample.code === 0 ? undefined : explain(sample));
  if (installed.code !== 0 || sample.code !== 0) return;
  tryPackage(folder, process.execPath, `Node ${process.versions.node}`);
  for (const version of ["20.3", "22", "24"]) {
    const place = join(folder, `node-${version}`);
    mkdirSync(place);
    writeFileSync(join(place, "package.json"), '{ "private": true }\n');
    const fetched = capture("npm", ["install", "--no-audit", "--no-fund", `node@${version}`], { cwd: place, timeout: 300_000 });
    const node = join(place, "node_modules/node/bin/node");
    if (fetched.code !== 0 || !existsSync(node))
      skip(`Node ${version}`, `npm's package node@${version} cannot be had: ${explain(fetched)}`);
    else tryPackage(folder, node, `Node ${version}`);
  }
  tryConsumers(folder, count, skip);
}

await main(ci);
