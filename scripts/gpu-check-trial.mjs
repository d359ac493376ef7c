// Tries the unpacked bundle of the GPU check over the stand-ins in an empty root: a shell and the C
// library are there, and no Node, npm, compiler, Python or network. Once as it is, once with a step
// that hangs and one that crashes, which may lose only themselves. Needs root.
import { spawnSync } from "node:child_process";
import { copyFileSync, cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { capture, must, root, Stop } from "./process.mjs";

/**
 * A mount namespace of its own, with what the kernel shows, and a network that has its loopback
 * alone.
 */
const enter = `
ip link set lo up
mount -t proc proc "$0/proc" && mount --rbind /sys "$0/sys" && mount --rbind /dev "$0/dev" || exit 69
exec chroot "$0" /check/check --bytes 33554432 --folder /tmp/results --over-stand-ins "$@"
`;
/**
 * NVIDIA's own CUDA runtime in the bundle refuses the driver of the stand-ins, which is of an older
 * version: what reads by GDS_MT fails.
 */
const needsRealDriver = new Set(["load-nixl", "load-auto", "ranges", "remote-read"]);
const faults = [
  ["--env", "memory:MX_FAKES=cuMemAddressReserve#1=hang"],
  ["--limit", "memory:2"],
  ["--env", "bus:LD_PRELOAD=/fakes/crash.so"],
].flat();

/** @param bundle folder of the unpacked bundle */
export async function tryBundle(bundle) {
  const empty = mkdtempSync(join(tmpdir(), "mx-empty-root-"));
  try {
    await furnish(empty, bundle);
    const plain = outcomesIn(empty, []);
    requireOutcomes(plain, { memory: "ok", bus: "ok" });
    requireOutcomes(outcomesIn(empty, faults), { memory: "hung", bus: "crashed" });
    console.log(`Tried in an empty root: ${Object.keys(plain).length} steps answered; a hang and a crash lost their own steps alone.`);
  } finally {
    rmSync(empty, { recursive: true, force: true });
  }
}

async function furnish(empty, bundle) {
  for (const folder of ["proc", "sys", "dev", "tmp", "bin"]) mkdirSync(join(empty, folder));
  cpSync(bundle, join(empty, "check"), { recursive: true });
  const fakes = join(empty, "fakes");
  await must("sh", [join(root, "native/fakes/build.sh"), fakes]);
  await must("cc", ["-shared", "-fPIC", "-o", join(fakes, "crash.so"), join(root, "test/support/crash.c")]);
  copyFileSync("/bin/sh", join(empty, "bin/sh"));
  // By what they are called: the loader and its search path are where they are here.
  const needed = ["/bin/sh", join(bundle, "node")].flatMap((file) =>
    [...capture("ldd", [file]).stdout.matchAll(/(\/\S+) \(0x/g)].map(([, path]) => path),
  );
  for (const path of new Set(needed)) {
    mkdirSync(dirname(join(empty, path)), { recursive: true });
    copyFileSync(path, join(empty, path));
  }
}

/** Outcome of each step. */
function outcomesIn(empty, args) {
  const env = {
    LD_LIBRARY_PATH: "/fakes",
    MX_FAKES: "",
    MX_NIXL_LIBRARY: "/fakes/nixl/libnixl_capi.so",
    MX_FAKES_NIXL_LIBRARY: "/check/lib/libnixl_capi.so",
  };
  const words = Object.entries(env).map(([name, value]) => `${name}=${value}`);
  // The variables are for the check alone, not for the programs that start it.
  const script = enter.replace('chroot "$0" /check/check', `env -i ${words.join(" ")} "$(command -v chroot)" "$0" /check/check`);
  const { stderr } = spawnSync("unshare", ["--mount", "--net", "--pid", "--fork", "sh", "-c", script, empty, ...args], {
    encoding: "utf8",
    timeout: 300_000,
  });
  const lines = readLines(join(empty, "tmp/results/report.jsonl"), stderr);
  rmSync(join(empty, "tmp/results"), { recursive: true, force: true });
  return Object.fromEntries(lines.filter(({ outcome }) => outcome !== undefined).map(({ step, outcome }) => [step, outcome]));
}

function readLines(report, stderr) {
  try {
    return readFileSync(report, "utf8")
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line));
  } catch {
    throw new Stop(`the check told nothing in an empty root: ${stderr.trim()}`);
  }
}

/** Every step is ok but for those expected otherwise. */
function requireOutcomes(outcomes, expected) {
  const wrong = Object.entries(outcomes).filter(([step, outcome]) => !needsRealDriver.has(step) && outcome !== (expected[step] ?? "ok"));
  if (wrong.length > 0 || outcomes.memory === undefined) throw new Stop(`in an empty root: ${JSON.stringify(outcomes)}`);
}
