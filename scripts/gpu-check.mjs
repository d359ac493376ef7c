// Checks and times the package on a machine with a GPU: the real driver, cuFile, NIXL. Prints a table, or JSON with --json; see docs/hardware.md.
import { createHash } from "node:crypto";
import { subscribe } from "node:diagnostics_channel";
import { closeSync, existsSync, mkdirSync, openSync, readdirSync, readFileSync, readSync, statSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { build } from "./build.mjs";
import { fetchNixl } from "./nixl.mjs";
import { capture, isMain, main, root, Stop } from "./process.mjs";

const help = `npm run gpu-check -- [options]

  --device <name>     device to check (default cuda:0)
  --bytes <count>     bytes of the checkpoint (default 2147483648)
  --folder <path>     where it is written, on the storage to be checked (default .cache/gpu-check)
  --json              the result as JSON
  --no-build          check the package as it is built
  --over-stand-ins    allow the stand-ins for CUDA in the real library's place: checks this script, not a GPU

Exits with 1 when a check fails, 69 where there is no CUDA device.`;

/** A step that cannot be made here. */
class Skip extends Error {}

async function gpuCheck() {
  const { values } = parseArgs({
    options: {
      help: { type: "boolean" },
      device: { type: "string", default: "cuda:0" },
      bytes: { type: "string", default: String(2 ** 31) },
      folder: { type: "string", default: join(root, ".cache/gpu-check") },
      json: { type: "boolean", default: false },
      "no-build": { type: "boolean", default: false },
      "over-stand-ins": { type: "boolean", default: false },
    },
  });
  if (values.help) return void console.log(help);
  if (!values["no-build"]) await build();
  const say = values.json ? () => {} : (line) => console.log(line);
  const product = await import(pathToFileURL(join(root, "dist/index.js")).href);
  const facts = await product.cudaFacts().catch((error) => {
    throw new Stop(`There is no CUDA device here: ${error.message}`, 69);
  });
  const standIns = standInsLoaded();
  if (standIns && !values["over-stand-ins"]) throw new Stop(`${facts.library} is the stand-in of the tests, not CUDA's driver.`, 69);

  const steps = [];
  const step = async (name, work) => {
    const begin = performance.now();
    const opened = [];
    const open = (resource) => {
      opened.push(resource);
      return resource;
    };
    let result;
    try {
      try {
        result = { name, outcome: "ok", found: await work(open) };
      } finally {
        for (const resource of opened.reverse()) await (resource[Symbol.asyncDispose] ?? resource[Symbol.dispose]).call(resource);
      }
    } catch (error) {
      const outcome = error instanceof Skip ? "skipped" : "failed";
      result = { name, outcome, found: `${error.code === undefined ? "" : `${error.code}: `}${error.message}` };
    }
    result.ms = Math.round(performance.now() - begin);
    steps.push(result);
    say(`${result.outcome.padEnd(8)}${name}\n${indented(result.found)}`);
  };
  await checks(product, facts, values, step);

  const failed = steps.filter(({ outcome }) => outcome === "failed").length;
  if (values.json) console.log(JSON.stringify({ standIns, cuda: facts, device: values.device, steps, failed }, null, 2));
  else say(`\n${steps.length - failed} of ${steps.length} steps without a failure${standIns ? ", over stand-ins" : ""}`);
  return failed === 0 ? 0 : 1;
}

async function checks(product, facts, { device, bytes, folder, "over-stand-ins": overStandIns }, step) {
  const { cudaBackend, hostBackend, loadCheckpoint, nativeLibraryPath, NixlAgent, probe, setActiveArena, VmmArena, GdsTransferManager } =
    product;
  const fabric = new Set();
  subscribe("modelexpress", (message) => {
    if (message.event === "cuda.fabric-unavailable") fabric.add(`${message.handleType}: ${message.reason}`);
  });
  mkdirSync(folder, { recursive: true });
  const path = join(folder, `llama-${bytes}`);
  const noNixl = await findNixl(product);

  await step("CUDA", () => [`${facts.library}, CUDA ${facts.driverVersion}`, ...facts.devices.map((each) => JSON.stringify(each))]);
  await step("probe", async () => {
    const { findings } = await probe(folder);
    return findings.map(({ name, found, why }) => `${found === true ? "yes" : found === false ? "no " : "?  "} ${name}: ${why}`);
  });

  const expected = new Map();
  const files = () => readdirSync(path).map((name) => join(path, name));
  await step("checkpoint into host memory", async (open) => {
    if (!existsSync(path)) {
      const { writeSample } = await import(pathToFileURL(join(root, "dist/sample/write-sample.js")).href);
      await writeSample(path, { shape: "llama", bytes: Number(bytes), shards: 4, seed: 1 });
    }
    evict(files());
    const model = open(await loadCheckpoint(path));
    for (const [name, digest] of await model.digest()) expected.set(name, digest);
    return [toldOf(model.report)];
  });

  for (const driver of ["nixl", "staged", "auto"]) {
    await step(`load to ${device} by ${driver}, bytes compared`, async () => {
      if (driver === "nixl" && noNixl !== undefined) throw new Skip(noNixl);
      const found = [];
      // The first load pays for contexts and libraries.
      for (let n = 0; n < 3; n++) {
        evict(files());
        const model = await loadCheckpoint(path, { device, driver });
        requireSame(expected, await model.digest());
        found.push(toldOf(model.report));
        if (model.report.nixl !== undefined) found.push(`  ${JSON.stringify(model.report.nixl)}`);
        await model.close();
      }
      return found;
    });
  }

  await step("the bus: pinned memory to device, and back", async (open) => {
    await (await loadCheckpoint(path, { driver: "pread" })).close();
    const model = open(await loadCheckpoint(path, { device, driver: "staged" }));
    const [largest] = [...model.tensors.values()].sort((a, b) => b.byteLength - a.byteLength);
    await largest.copyToHost();
    const begin = performance.now();
    const copy = await largest.copyToHost();
    const ms = performance.now() - begin;
    if (hex(copy) !== expected.get(largest.name)) throw new Error(`tensor ${largest.name} differs after copyToHost()`);
    return [`staged, from the page cache: ${toldOf(model.report)}`, `back: ${(copy.length / ms / 1e6).toFixed(2)} GB/s into fresh pages`];
  });

  await step("GdsTransferManager", async (open) => {
    if (noNixl !== undefined) throw new Skip(noNixl);
    const file = join(path, "model-00001-of-00004.safetensors");
    const fileBytes = statSync(file).size;
    const ranges = [
      [0, 4096],
      [4096, 2 ** 20],
      [12_345, 6_789],
      [fileBytes - 1000, 1000],
    ];
    const gds = open(await GdsTransferManager.create({ agentName: "gpu-check", device }));
    const batch = open(await gds.batchLoadFile(file, fileBytes, ranges));
    for (const [row, [offset, length]] of ranges.entries()) {
      const copy = await batch.buffers[row].copyToHost();
      if (Buffer.compare(copy, readRange(file, offset, length)) !== 0) throw new Error(`range ${row} differs`);
    }
    return [JSON.stringify(batch.report)];
  });

  await step("arena on the device", async (open) => {
    const arena = open(new VmmArena({ backend: cudaBackend({ device }) }));
    const pairs = 200;
    const begin = performance.now();
    for (let n = 0; n < pairs; n++) arena.free(arena.malloc(2 ** 21));
    const us = ((performance.now() - begin) * 1000) / pairs;
    const kept = [1, 2 ** 21, 3 * 2 ** 21].map((size) => arena.malloc(size));
    const stats = `${arena.liveAllocationCount} live, ${arena.mappedBytes} mapped`;
    for (const address of kept) arena.free(address);
    return [`granularity ${arena.granularity}, reserve ${arena.totalBytes}, ${us.toFixed(1)} us a pair of 2 MiB, ${stats}`, ...fabric];
  });

  await step("mx_malloc and mx_free from threads of C", async (open) => {
    const program = join(folder, "c-caller.node");
    const source = join(root, "test/support/c-caller.c");
    const { code, stderr } = capture("cc", ["-O2", "-shared", "-fPIC", "-pthread", "-o", program, source, "-ldl"]);
    if (code !== 0) throw new Skip(`no C compiler: ${stderr}`);
    const c = { exports: {} };
    process.dlopen(c, program);
    c.exports.open(nativeLibraryPath);
    const arena = open(new VmmArena({ backend: cudaBackend({ device }) }));
    setActiveArena(arena);
    try {
      return [1, 4].map((threads) => {
        const [given, refused, ns] = c.exports.pairs(threads, 2 ** 20, Number(device.slice("cuda:".length)), 100);
        if (refused > 0 || given !== threads * 100) throw new Error(`${given} allocations given, ${refused} refused`);
        return `${threads} thread(s): ${(ns / given / 1000).toFixed(1)} us a pair`;
      });
    } finally {
      setActiveArena(null);
    }
  });

  await step("registered once, read by another agent over UCX", async (open) => {
    if (noNixl !== undefined) throw new Skip(noNixl);
    const model = open(await loadCheckpoint(path, { device, driver: "staged" }));
    const owner = open(await NixlAgent.create({ name: "owner", plugins: { UCX: {} } }));
    let begin = performance.now();
    const shared = open(await model.arena.register(owner));
    const found = [`${shared.layout}, ${shared.regions} region(s) in ${(performance.now() - begin).toFixed(2)} ms: ${shared.reason}`];
    const bytes = model.report.allocationBytes;
    const arena = open(new VmmArena({ backend: hostBackend(), totalBytes: bytes }));
    const base = arena.malloc(bytes);
    const reader = open(await NixlAgent.create({ name: "reader", plugins: { UCX: {} } }));
    const own = open(await arena.register(reader));
    const remoteAgent = await reader.loadRemote(await owner.exportMetadata());
    const tensors = [...model.tensors.values()].filter(({ byteLength }) => byteLength > 0);
    // In the order of files and offsets, which is that of addresses.
    const first = tensors[0].address;
    const length = Float64Array.from(tensors, ({ byteLength }) => byteLength);
    const local = { kind: "DRAM", device: 0, address: BigUint64Array.from(tensors, ({ address }) => base + address - first), length };
    const remote = {
      kind: "VRAM",
      device: Number(device.slice("cuda:".length)),
      address: BigUint64Array.from(tensors, ({ address }) => address),
      length,
    };
    const transfer = await reader.createTransfer({ operation: "read", local, remote, remoteAgent, registrations: [own] });
    begin = performance.now();
    transfer.post();
    await transfer.wait({ timeoutMs: 60_000 });
    const ms = performance.now() - begin;
    await transfer.release();
    for (const [row, { name, byteLength }] of tensors.entries()) {
      const got = hex(new Uint8Array(arena.view(local.address[row], byteLength)));
      if (got !== expected.get(name)) throw new Error(`tensor ${name} differs after the read`);
    }
    found.push(`${tensors.length} tensors read in ${ms.toFixed(0)} ms, ${(model.report.bytes / ms / 1e6).toFixed(2)} GB/s`);
    return found;
  });

  await step("libraries", () => {
    const maps = readFileSync("/proc/self/maps", "utf8");
    const libraries = [...new Set(maps.match(/\/\S*\/lib(?:cuda|cudart|cufile|nixl|nixl_capi|ucp)\b[^/\s]*$/gm))];
    if (standInsLoaded() && !overStandIns) throw new Error(`a stand-in of the tests was loaded: ${libraries.join(", ")}`);
    return libraries;
  });
}

function standInsLoaded() {
  return /libmx_fakes/.test(readFileSync("/proc/self/maps", "utf8"));
}

/** Drops files from the page cache; does nothing where there is no python3, and the reports then say what was cached. */
function evict(files) {
  const script = "import os, sys; [os.posix_fadvise(os.open(f, os.O_RDONLY), 0, 0, os.POSIX_FADV_DONTNEED) for f in sys.argv[1:]]";
  capture("python3", ["-c", script, ...files]);
}

function readRange(file, offset, length) {
  const fd = openSync(file, "r");
  const bytes = Buffer.alloc(length);
  readSync(fd, bytes, 0, length, offset);
  closeSync(fd);
  return bytes;
}

/** Why NIXL cannot be had, after having tried to fetch it. */
async function findNixl({ loadNixl }) {
  try {
    await loadNixl();
    return undefined;
  } catch {
    try {
      process.env.MX_NIXL_LIBRARY = fetchNixl();
      await loadNixl();
      return undefined;
    } catch (error) {
      return error.message;
    }
  }
}

function requireSame(expected, digests) {
  for (const [name, digest] of expected) if (digests.get(name) !== digest) throw new Error(`tensor ${name} differs from the file`);
  if (digests.size !== expected.size) throw new Error(`${digests.size} tensors instead of ${expected.size}`);
}

function toldOf({ bytes, times, shards: [{ used, reason }] }) {
  const speed = (bytes / times.transferMs / 1e6).toFixed(2);
  return `${speed} GB/s, allocated in ${times.allocateMs.toFixed(1)} ms: ${used.join(", ")}; ${reason}`;
}

function hex(bytes) {
  return createHash("sha256").update(bytes).digest("hex");
}

function indented(found) {
  return [found]
    .flat()
    .map((line) => `        ${line}`.replaceAll("\n", "\n        "))
    .join("\n");
}

if (isMain(import.meta.url)) await main(gpuCheck);
