// Checks that what a build needs is there. A missing one gets a message that says what to install;
// the exit code is 69 (EX_UNAVAILABLE).
import { capture, isMain, main, Stop } from "./process.mjs";

const least = { node: [20, 3], rust: [1, 88] };

/** Throws a {@link Stop} that names everything missing, if anything is. */
export function checkToolchain() {
  const missing = [node(), rust("rustc"), rust("cargo"), linker()].filter((line) => line !== undefined);
  if (process.platform !== "linux") missing.unshift(`Linux: this package does not run on ${process.platform}`);
  if (missing.length > 0)
    throw new Stop(`To build modelexpress-client, install what is missing:\n${missing.map((line) => `  - ${line}`).join("\n")}`, 69);
}

function node() {
  if (atLeast(process.versions.node, least.node)) return undefined;
  return `Node ${least.node.join(".")} or newer (this is ${process.version}): https://nodejs.org/en/download`;
}

function rust(tool) {
  const { code, stdout, stderr } = capture(tool, ["--version"]);
  const wanted = `Rust ${least.rust.join(".")} or newer`;
  if (code === null) return `${wanted} (\`${tool}\` is not in PATH): https://rustup.rs, or your distribution's package`;
  const version = /\d+\.\d+/.exec(stdout)?.[0];
  if (version !== undefined && atLeast(version, least.rust)) return undefined;
  return `${wanted} (\`${tool} --version\` says "${(stdout || stderr).trim()}"): run \`rustup update stable\``;
}

function linker() {
  if (capture("cc", ["--version"]).code === 0) return undefined;
  return "a C compiler and linker (`cc` is not in PATH): `apt-get install build-essential`, `dnf install gcc`, or the like";
}

function atLeast(version, [major, minor]) {
  const [a = 0, b = 0] = version.split(".").map(Number);
  return a > major || (a === major && b >= minor);
}

if (isMain(import.meta.url)) await main(checkToolchain);
