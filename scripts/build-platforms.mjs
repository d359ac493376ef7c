// Builds the addon for every platform by zig as the linker, and packs what is published into
// packages/: the main package, without an addon, and one package for each platform, of which npm
// installs the one that fits. Needs rustup and Python 3; tools and targets are fetched.
import { copyFileSync, cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { build } from "./build.mjs";
import { addonName, oldestGlibc, oldestMusl, platforms } from "./platforms.mjs";
import { capture, isMain, main, must, root, run, Stop } from "./process.mjs";

const tools = ["cargo-zigbuild==0.24.1", "ziglang==0.17.1"];
const toolFolder = join(root, ".cache/zigbuild");
const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
const packages = join(root, "packages");
const targetFolder = join(root, "native/target");

export async function buildPlatforms() {
  await build();
  await prepare();
  await buildAddons();
  rmSync(packages, { recursive: true, force: true });
  for (const [platform, { target }] of Object.entries(platforms)) {
    const library = join(targetFolder, target, "release/libmx_node.so");
    requireLoadable(platform, library);
    packPlatform(platform, library);
  }
  packMain();
}

/** The tools, in a virtual environment of their own, and the targets' standard libraries. */
async function prepare() {
  if (!existsSync(join(toolFolder, "bin/cargo-zigbuild"))) {
    await must("python3", ["-m", "venv", toolFolder]);
    await must(join(toolFolder, "bin/pip"), ["install", "--quiet", "--disable-pip-version-check", ...tools]);
  }
  const installed = capture("rustup", ["target", "list", "--installed"]);
  if (installed.code !== 0)
    throw new Stop("`rustup` is missing, from which the standard libraries for other platforms come: https://rustup.rs", 69);
  const wanted = Object.values(platforms)
    .map(({ target }) => target)
    .filter((target) => !installed.stdout.split("\n").includes(target));
  if (wanted.length > 0) await must("rustup", ["target", "add", ...wanted]);
}

/** All at once: cargo keeps every core busy, and builds what they share once. */
async function buildAddons() {
  const env = { PATH: `${join(toolFolder, "bin")}${delimiter}${process.env.PATH}`, CARGO_TARGET_DIR: targetFolder };
  const targets = Object.values(platforms).flatMap(({ target, libc }) => {
    // A shared library of musl takes the C library of the process.
    if (libc === "musl") env[`CARGO_TARGET_${target.toUpperCase().replaceAll("-", "_")}_RUSTFLAGS`] = "-C target-feature=-crt-static";
    return ["--target", libc === "glibc" ? `${target}.${oldestGlibc}` : target];
  });
  const args = ["zigbuild", "--release", "--locked", "-p", "mx-node", ...targets];
  if ((await run("cargo", args, { cwd: join(root, "native"), env })) !== 0) throw new Stop("The addons cannot be built.");
}

/**
 * Checks that a library is for its processor, needs no newer C library than stated, and nothing but
 * the C library.
 */
export function requireLoadable(platform, library) {
  const { machine, libc } = platforms[platform];
  const { code, stdout } = capture("readelf", ["--wide", "-h", "-d", "-V", library]);
  if (code !== 0) throw new Stop("`readelf` is missing: install binutils.", 69);
  const problems = [];
  const found = /Machine:\s+(.+)/.exec(stdout)?.[1] ?? "";
  if (!found.includes(machine)) problems.push(`it is for ${found}`);
  const foreign = [...stdout.matchAll(/\(NEEDED\).*\[(.+)\]/g)]
    .map(([, name]) => name)
    .filter((name) => !(libc === "musl" ? /^libc\.so$/ : /^(ld-linux-.*|libc|libdl|libm|libpthread)\.so\.\d$/).test(name));
  if (foreign.length > 0) problems.push(`it needs ${foreign.join(", ")}`);
  const newer = [...new Set([...stdout.matchAll(/\bGLIBC_(\d+\.\d+)/g)].map(([, version]) => version))].filter(
    (version) => libc === "musl" || Number(version.split(".")[1]) > Number(oldestGlibc.split(".")[1]),
  );
  if (newer.length > 0) problems.push(`it needs glibc ${newer.sort().at(-1)}`);
  if (problems.length > 0) throw new Stop(`The addon ${library} does not fit ${platform}: ${problems.join("; ")}.`);
}

/** Packs the addon of one platform. */
export function packPlatform(platform, library) {
  const { cpu, libc } = platforms[platform];
  const name = `${manifest.name}-${platform}`;
  const folder = emptied(name);
  copyFileSync(library, join(folder, addonName(platform)));
  copyFileSync(join(root, "LICENSE"), join(folder, "LICENSE"));
  const needs = libc === "glibc" ? `glibc ${oldestGlibc} or newer` : `musl ${oldestMusl} or newer`;
  writeFileSync(
    join(folder, "README.md"),
    `# ${name}\n\nThe native addon of \`${manifest.name}\` for ${platform} (${needs}). Installed with it.\n`,
  );
  const { version, license, engines, os } = manifest;
  const description = `The native addon of ${manifest.name} for ${platform}`;
  const fields = {
    name,
    version,
    description,
    license,
    engines,
    os,
    cpu: [cpu],
    libc: [libc],
    main: addonName(platform),
    files: [addonName(platform)],
  };
  pack(folder, fields);
}

/** Packs the main package, which names the others as optional dependencies. */
export function packMain() {
  const folder = emptied(manifest.name);
  for (const file of ["LICENSE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md"]) copyFileSync(join(root, file), join(folder, file));
  cpSync(join(root, "docs"), join(folder, "docs"), { recursive: true });
  cpSync(join(root, "lib"), join(folder, "lib"), { recursive: true, filter: (path) => !path.endsWith(".node") });
  const { devDependencies, scripts, overrides, ...fields } = manifest;
  const names = Object.keys(platforms).map((platform) => `${manifest.name}-${platform}`);
  pack(folder, { ...fields, optionalDependencies: Object.fromEntries(names.map((name) => [name, manifest.version])) });
}

function emptied(name) {
  const folder = join(packages, name);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  return folder;
}

function pack(folder, fields) {
  writeFileSync(join(folder, "package.json"), `${JSON.stringify(fields, null, 2)}\n`);
  const { code, stdout, stderr } = capture("npm", ["pack", "--pack-destination", packages], { cwd: folder });
  if (code !== 0) throw new Stop(`npm pack failed in ${folder}: ${stderr}`);
  console.log(`packages/${stdout.trim().split("\n").at(-1)}`);
}

if (isMain(import.meta.url)) await main(buildPlatforms);
