// Builds lib/, which is packed, and dist/, for tests: the native addon by cargo, the JavaScript by
// tsc and esbuild. Does only what is not up to date.
import { createHash } from "node:crypto";
import { chmodSync, copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { addonTypes, withAddonTypes } from "./addon-types.mjs";
import { install } from "./install.mjs";
import { addonName, thisPlatform } from "./platforms.mjs";
import { bin, isMain, main, must, root, run, Stop } from "./process.mjs";
import { checkToolchain } from "./toolchain.mjs";

export async function build() {
  checkToolchain();
  checkVersions();
  await install();
  await buildAddon();
  await buildJavaScript();
}

/**
 * The addon refuses JavaScript of another version, so the three places that state one must agree.
 */
function checkVersions() {
  const stated = {
    "package.json": JSON.parse(read("package.json")).version,
    "native/Cargo.toml": /^version = "(.+)"$/m.exec(read("native/Cargo.toml"))?.[1],
    "src/native/load.ts": /addonVersion = "(.+)"/.exec(read("src/native/load.ts"))?.[1],
  };
  if (new Set(Object.values(stated)).size > 1) {
    const list = Object.entries(stated).map(([file, version]) => `  ${file}: ${version}`);
    throw new Stop(`The version must be the same in these files:\n${list.join("\n")}`);
  }
}

async function buildAddon() {
  const library = await withAddonTypes((env) => compileAddon(["--release"], env));
  place(library, join(root, "lib", addonName(thisPlatform())));
}

/**
 * Compiles the crate mx-node. The messages tell where the library lies, whatever target folder or
 * triple the user's cargo configuration sets.
 */
export async function compileAddon(flags, env = {}) {
  let messages = "";
  const args = ["build", "--locked", "-p", "mx-node", "--message-format=json-render-diagnostics", ...flags];
  await must("cargo", args, { cwd: join(root, "native"), env, quiet: true, tee: (chunk) => (messages += chunk) });
  const artifact = messages
    .split("\n")
    .filter((line) => line.startsWith("{"))
    .map((line) => JSON.parse(line))
    .find(({ reason, target }) => reason === "compiler-artifact" && target.name === "mx_node");
  const library = artifact?.filenames.find((file) => file.endsWith(".so"));
  if (library === undefined) throw new Stop("cargo built no shared library of the crate mx-node");
  return library;
}

/** A process that has the old one loaded keeps it: the new file takes over the name only. */
export function place(library, addon) {
  if (existsSync(addon) && readFileSync(addon).equals(readFileSync(library))) return;
  mkdirSync(dirname(addon), { recursive: true });
  const partial = `${addon}.${process.pid}`;
  copyFileSync(library, partial);
  renameSync(partial, addon);
}

/**
 * The modules one by one in dist/, for tests and for the documentation; in lib/ what is packed:
 * their types, and the same code in a few files.
 */
async function buildJavaScript() {
  const stamp = join(root, ".cache/javascript.json");
  const tools = ["node_modules/typescript/package.json", "node_modules/esbuild/package.json"];
  const inputs = hash([...files("src"), "scripts/build.mjs", "tsconfig.json", "tsconfig.build.json", ...tools]);
  const last = existsSync(stamp) ? JSON.parse(readFileSync(stamp, "utf8")) : undefined;
  if (last?.inputs === inputs && last.outputs.every((file) => existsSync(root + file)) && hash(last.outputs) === last.outputsHash) return;
  let emitted = "";
  const args = ["-p", "tsconfig.build.json", "--listEmittedFiles"];
  const code = await run(bin("tsc"), args, { quiet: true, tee: (chunk) => (emitted += chunk) });
  if (code !== 0) throw new Stop(emitted.replace(/^TSFILE: .*\n/gm, "").trimEnd());
  const modules = [...emitted.matchAll(/^TSFILE: (.+)$/gm)].map(([, file]) => file.slice(root.length));
  // What is declared already is not emitted.
  const declared = join("lib/types", addonTypes.slice("src/".length));
  copyFileSync(join(root, addonTypes), join(root, declared));
  const outputs = [...modules, declared, ...(await bundle())].sort();
  // What a removed source file once gave must not be packed.
  for (const file of [...files("dist"), ...files("lib")]) if (!file.endsWith(".node") && !outputs.includes(file)) rmSync(root + file);
  for (const command of ["dist/cli/main.js", "lib/mx.js"]) chmodSync(join(root, command), 0o755);
  mkdirSync(dirname(stamp), { recursive: true });
  writeFileSync(stamp, JSON.stringify({ inputs, outputs, outputsHash: hash(outputs) }));
}

/**
 * Joins the modules: a file costs half a millisecond to import. Names stay as they are written, for
 * stack traces. Returns the files.
 */
async function bundle() {
  const { build: joinModules } = await import("esbuild");
  const { metafile } = await joinModules({
    absWorkingDir: root,
    entryPoints: { index: "src/index.ts", mx: "src/cli/main.ts", "gds-main": "src/probe/gds-main.ts" },
    outdir: "lib",
    bundle: true,
    splitting: true,
    format: "esm",
    platform: "node",
    target: "node20.3",
    packages: "external",
    metafile: true,
    logLevel: "warning",
  });
  return Object.keys(metafile.outputs);
}

function read(file) {
  return readFileSync(root + file, "utf8");
}

/** Paths of all files under a folder, relative to the root, sorted. */
function files(folder) {
  return readdirSync(root + folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name).slice(root.length))
    .sort();
}

function hash(paths) {
  const sum = createHash("sha256");
  for (const path of paths)
    sum
      .update(path)
      .update("\0")
      .update(readFileSync(root + path))
      .update("\0");
  return sum.digest("hex");
}

if (isMain(import.meta.url)) await main(build);
