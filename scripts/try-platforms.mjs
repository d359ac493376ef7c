// Tries what build-platforms.mjs packed, each pair of packages installed in an empty project,
// without Rust in PATH: this platform by its Node, the others by foreign-nodes.mjs. Ends with "N
// passed, N failed", also written to .cache/platform-results.json.
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { foreignNodes } from "./foreign-nodes.mjs";
import { platforms, thisPlatform } from "./platforms.mjs";
import { capture, isMain, main, root, Stop } from "./process.mjs";

const { name, version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
const tarball = (packed) => join(root, "packages", `${packed}-${version}.tgz`);
const command = "node_modules/modelexpress-client/lib/mx.js";
/** Node alone: what builds is not in it. */
const env = { PATH: `${dirname(process.execPath)}:/usr/bin:/bin` };
const own = thisPlatform();

/** Drivers that are tried; qemu knows no io_uring, so that `auto` has to do without it there. */
const drivers = ["auto", "pread"];

/** Tells each outcome to `count(name, problem)`. */
export function tryPlatforms(count) {
  if (!existsSync(tarball(name))) throw new Stop("There is nothing in packages/: `npm run build:platforms` first.", 66);
  const folder = mkdtempSync(join(tmpdir(), "modelexpress-platforms-"));
  const attempt = (title, body) => {
    try {
      body();
      count(title);
    } catch (thrown) {
      if (!(thrown instanceof Stop)) throw thrown;
      count(title, thrown.message);
    }
  };
  try {
    const here = install(join(folder, "here"), [name, `${name}-${own}`]);
    const checkpoint = writeCheckpoint(here, join(folder, "checkpoint"));
    const expected = digests([process.execPath], here, checkpoint, "pread");
    const nodes = { ...foreignNodes(), [own]: [process.execPath] };
    for (const platform of Object.keys(platforms)) {
      const project = platform === own ? here : install(join(folder, platform), [name, `${name}-${platform}`], ["--force"]);
      for (const driver of drivers)
        attempt(`${platform}: mx load by ${driver}`, () => {
          if (digests(nodes[platform], project, checkpoint, driver) !== expected) throw new Stop("the bytes of tensors are wrong");
        });
      attempt(`${platform}: mx verify`, () => verify(nodes[platform], project, checkpoint));
    }
    attempt("the main package alone says which one to install", () => without(folder, checkpoint));
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/**
 * An empty project with these packages. npm refuses what is for another platform, unless it is
 * forced.
 */
function install(project, packed, options = []) {
  mkdirSync(project);
  writeFileSync(join(project, "package.json"), '{ "private": true }\n');
  must("npm", ["install", "--no-audit", "--no-fund", ...options, ...packed.map(tarball)], project);
  return project;
}

/** A sample with a list of its digest. */
function writeCheckpoint(project, checkpoint) {
  must(process.execPath, [command, "sample", checkpoint, "--bytes", "1MiB"], project);
  const digest = createHash("sha256")
    .update(readFileSync(join(checkpoint, "model.safetensors")))
    .digest("hex");
  writeFileSync(join(checkpoint, "SHA256SUMS"), `${digest}  model.safetensors\n`);
  return checkpoint;
}

/** Names of all tensors and the digests of their bytes, as they lie in memory. */
function digests([node, ...args], project, checkpoint, driver) {
  const stdout = must(node, [...args, command, "load", checkpoint, "--driver", driver, "--digest", "--json"], project);
  return JSON.stringify(JSON.parse(stdout).tensors.map((tensor) => [tensor.name, tensor.sha256]));
}

function verify([node, ...args], project, checkpoint) {
  const { structure, shards } = JSON.parse(must(node, [...args, command, "verify", checkpoint, "--require", "--json"], project));
  const told = [structure, ...shards.map(({ status }) => status)].join(", ");
  if (told !== "ok, ok") throw new Stop(`it tells ${told}`);
}

function without(folder, checkpoint) {
  const project = install(join(folder, "alone"), [name], ["--omit=optional"]);
  const { code, stderr } = capture(process.execPath, [command, "load", checkpoint], { cwd: project, env });
  const expected = `npm install ${name}-${own}@${version}`;
  if (code !== 69 || !stderr.replace(/\s+/g, " ").includes(expected)) throw new Stop(`exit code ${code}: ${stderr}`);
}

function must(program, args, cwd) {
  const { code, stdout, stderr } = capture(program, args, { cwd, env, timeout: 300_000 });
  if (code !== 0) throw new Stop(`\`${[program, ...args].join(" ")}\` ended with ${code}: ${(stderr || stdout).trim().slice(-1000)}`);
  return stdout;
}

if (isMain(import.meta.url))
  await main(async () => {
    let failed = 0;
    tryPlatforms((title, problem) => {
      console.log(problem === undefined ? `ok      ${title}` : `FAILED  ${title}: ${problem}`);
      if (problem !== undefined) failed += 1;
    });
    return failed > 0 ? 1 : 0;
  });
