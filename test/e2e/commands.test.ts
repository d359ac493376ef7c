import { createHash } from "node:crypto";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it, vi } from "vitest";
import { temporaryFolder } from "../support/folders.js";
import { ioUringRefusal } from "../support/loading.js";
import { nixlLibrary, nixlMissing } from "../support/nixl.js";
import { runMx } from "../support/run-node.js";
import { buildSafetensors, pattern, writeIndex } from "../support/safetensors.js";

/**
 * What every command must do on a checkpoint that is well: exit code 0, nothing on stderr, and with
 * `--json` one document on stdout.
 */
async function mx(...args: string[]) {
  const { code, stdout, stderr } = await runMx(args);
  expect([code, stderr], args.join(" ")).toEqual([0, ""]);
  return stdout;
}

async function mxJson(...args: string[]) {
  return JSON.parse(await mx(...args, "--json"));
}

const tensors = {
  weight: { dtype: "F32", shape: [3, 4] },
  bias: { dtype: "BF16", shape: [5] },
  scalar: { dtype: "I64", shape: [] },
  empty: { dtype: "U8", shape: [0, 7] },
} as const;

function oneFile() {
  const file = join(temporaryFolder(), "model.safetensors");
  writeFileSync(file, buildSafetensors(tensors, { metadata: { format: "pt" } }));
  return file;
}

function twoShards() {
  const folder = temporaryFolder();
  writeFileSync(join(folder, "model-00001-of-00002.safetensors"), buildSafetensors({ weight: tensors.weight }));
  writeFileSync(join(folder, "model-00002-of-00002.safetensors"), buildSafetensors({ bias: tensors.bias, scalar: tensors.scalar }));
  writeIndex(join(folder, "model.safetensors.index.json"), {
    weight: "model-00001-of-00002.safetensors",
    bias: "model-00002-of-00002.safetensors",
    scalar: "model-00002-of-00002.safetensors",
  });
  return folder;
}

const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");

describe("mx inspect", () => {
  it("tells shards, tensors, dtypes, parameters and bytes", async () => {
    const file = oneFile();
    const found = await mxJson("inspect", file, "--tensors");
    expect(found).toMatchObject({
      path: file,
      kind: "file",
      tensorCount: 4,
      parameterCount: 18,
      byteLength: 66,
      metadata: { format: "pt" },
    });
    expect(found.dtypes).toEqual([
      { dtype: "F32", tensorCount: 1, parameterCount: 12, byteLength: 48 },
      { dtype: "BF16", tensorCount: 1, parameterCount: 5, byteLength: 10 },
      { dtype: "I64", tensorCount: 1, parameterCount: 1, byteLength: 8 },
      { dtype: "U8", tensorCount: 1, parameterCount: 0, byteLength: 0 },
    ]);
    const [shard] = found.shards;
    expect(shard).toMatchObject({ file, name: "model.safetensors", tensorCount: 4 });
    const dataOffset = shard.dataOffset;
    const byName = Object.fromEntries(found.tensors.map((tensor: { name: string }) => [tensor.name, tensor]));
    expect(Object.keys(byName).sort()).toEqual(["bias", "empty", "scalar", "weight"]);
    expect(byName.bias).toEqual({
      name: "bias",
      dtype: "BF16",
      shape: [5],
      byteLength: 10,
      offset: dataOffset + 48,
      shard: "model.safetensors",
    });
  });

  it("shows the same as text", async () => {
    const text = await mx("inspect", twoShards(), "--tensors");
    expect(text).toMatch(/^tensors\s+3$/m);
    expect(text).toMatch(/^parameters\s+18$/m);
    expect(text).toMatch(/^model-00002-of-00002\.safetensors\s+2 /m);
    expect(text).toMatch(/^weight\s+F32\s+\[3, 4\]\s+48 /m);
  });

  it("names what it leaves aside in a folder, and why", async () => {
    const folder = twoShards();
    mkdirSync(join(folder, "original"));
    mkdirSync(join(folder, "docs"));
    const others = [
      ".hidden.safetensors",
      "consolidated.safetensors",
      "model.fp16.safetensors.index.json",
      "pytorch_model.bin",
      "vae.safetensors.part",
      "original/consolidated.00.safetensors",
      "docs/readme.md",
      "config.json",
    ];
    for (const name of others) writeFileSync(join(folder, name), "{}");
    const { aside } = await mxJson("inspect", folder);
    expect(aside.map(({ name, why }: { name: string; why: string }) => `${name}: ${why}`)).toEqual([
      ".hidden.safetensors: hidden",
      "consolidated.safetensors: other weights: see --weights",
      "model.fp16.safetensors.index.json: an index that is not needed for these files",
      "original/: 1 file(s) of weights: folders below do not count",
      "pytorch_model.bin: another format",
      "vae.safetensors.part: unfinished: left by a downloader (Firefox, KDE, scripts of curl or wget)",
    ]);
    expect(await mx("inspect", folder)).toMatch(/^left aside +why\n\.hidden\.safetensors +hidden\n/m);
    expect((await mxJson("inspect", join(folder, "model-00001-of-00002.safetensors"))).aside).toEqual([]);
  });

  it("does not let a tensor's name steer the terminal", async () => {
    const file = join(temporaryFolder(), "model.safetensors");
    writeFileSync(file, buildSafetensors({ "\u001b[2J": { dtype: "U8", shape: [1] } }));
    expect(await mx("inspect", file, "--tensors")).toContain("\\u001b[2J");
  });
});

describe("mx plan", () => {
  it("tells every range, piece and place", async () => {
    const plan = await mxJson("plan", twoShards(), "--include", "b*", "--include", "scalar");
    expect(plan.totals).toMatchObject({ tensors: 2, bytes: 18, ranges: 1, pieces: 1 });
    expect(plan.shards).toHaveLength(1);
    expect(plan.shards[0].ranges[0].length).toBe(18);
    expect(plan.memory.fits).toBe(true);
    const slackOf = async (...args: string[]) => (await mxJson("plan", twoShards(), ...args)).memory.slack;
    expect(await slackOf("--driver", "pread", "--threads", "1")).toMatchObject({ threadBytes: 131_072, ringBytes: 66, libraryBytes: 0 });
    expect(await slackOf("--driver", "nixl", "--threads", "3")).toMatchObject({ threadBytes: 524_288, libraryBytes: 50_331_648 });
  });

  it.for(["pread", "io_uring", "nixl"])("tells as many reads as a load by %s makes", async (driver, context) => {
    if (driver === "nixl") context.skip(nixlMissing !== undefined, nixlMissing);
    vi.stubEnv("MX_NIXL_LIBRARY", nixlLibrary);
    if (driver === "io_uring") context.skip(ioUringRefusal() !== "", `io_uring is refused here: ${ioUringRefusal()}`);
    const file = join(temporaryFolder(), "model.safetensors");
    writeFileSync(file, buildSafetensors({ odd: { dtype: "U8", shape: [70_001] }, large: { dtype: "U8", shape: [5 * 2 ** 20 + 13] } }));
    const args = [file, "--driver", driver, "--max-chunk", "64KiB"];
    const { ways } = (await mxJson("plan", ...args)).reads;
    const { reads } = (await mxJson("load", ...args)).report;
    expect(reads).toBe(ways.reduce((sum: number, way: { reads: number }) => sum + way.reads, 0));
    expect(reads).toBeGreaterThan(80);
  });

  it("tells which ways there are, and asks no machine for what only a load can find out", async () => {
    const folder = twoShards();
    const waysOf = async (...args: string[]) =>
      (await mxJson("plan", folder, ...args)).reads.ways.map(({ path, of }: { path: string; of: string }) => `${path}: ${of}`);
    expect(await waysOf("--driver", "map")).toEqual(["map: all: read by whoever touches the pages first"]);
    expect(await waysOf("--device", "cuda:0")).toEqual([
      "nixl: all, by GDS_MT, of files that GPUDirect Storage can read",
      "staged: of all other files what the page cache holds (buffered)",
      "staged: of all other files what is no whole block, and ranges under 128 KiB (buffered)",
    ]);
  });

  it("shows it as text", async () => {
    const text = await mx("plan", twoShards(), "--placement", "aligned", "--alignment", "256", "--max-chunk", "4KiB");
    expect(text).toMatch(/^tensors\s+3 of 3$/m);
    expect(text).toMatch(/^alignment\s+256 B$/m);
    expect(text).toMatch(/^buffered +2 +4 KiB +1 B +- {2}what the page cache holds$/m);
    const packed = await mx("plan", twoShards(), "--placement", "packed", "--alignment", "256");
    expect(packed).toMatch(/^alignment +none for single tensors: packed placement keeps the file's order, without gaps \(asked: 256 B\)$/m);
    expect(text).toMatch(/ aligned /);
  });
});

describe("mx load", () => {
  it.for(["auto", "pread", "io_uring", "map", "nixl"])("loads and hashes with the driver %s", async (driver, context) => {
    if (driver === "nixl") context.skip(nixlMissing !== undefined, nixlMissing);
    vi.stubEnv("MX_NIXL_LIBRARY", nixlLibrary);
    if (driver === "io_uring") context.skip(ioUringRefusal() !== "", `io_uring is refused here: ${ioUringRefusal()}`);
    const loaded = await mxJson("load", twoShards(), "--digest", "--driver", driver);
    const found = loaded.tensors.map(({ name, dtype, shape, byteLength, sha256 }: Record<string, unknown>) => ({
      name,
      dtype,
      shape,
      byteLength,
      sha256,
    }));
    expect(found).toEqual([
      { name: "weight", dtype: "F32", shape: [3, 4], byteLength: 48, sha256: sha256(pattern("weight", 48)) },
      { name: "bias", dtype: "BF16", shape: [5], byteLength: 10, sha256: sha256(pattern("bias", 10)) },
      { name: "scalar", dtype: "I64", shape: [], byteLength: 8, sha256: sha256(pattern("scalar", 8)) },
    ]);
    for (const { address } of loaded.tensors) expect(address).toMatch(/^0x[0-9a-f]+$/);
    expect(new Set(loaded.tensors.map(({ address }: { address: string }) => address)).size).toBe(3);
    expect(loaded.report).toMatchObject({ driver: { asked: driver }, bytes: 66, tensors: 3 });
    expect(loaded.report.shards).toHaveLength(2);
    expect(loaded.report.times.totalMs).toBeGreaterThan(0);
  });

  it("ignores the check of memory when told to, and says what it found", async () => {
    const { report } = await mxJson("load", twoShards(), "--ignore-memory");
    expect(report.memory).toMatchObject({ check: "ignore", fits: true, limitedBy: expect.any(String) });
    expect(await mx("load", twoShards(), "--ignore-memory")).toMatch(/^ {2}check\s+ignored: it fits$/m);
    expect(await mx("load", twoShards())).not.toMatch(/check/);
  });

  it("leaves digests out unless asked", async () => {
    const loaded = await mxJson("load", oneFile());
    expect(loaded.tensors).toHaveLength(4);
    expect(loaded.tensors[0]).not.toHaveProperty("sha256");
  });

  it("shows the report as text, and digests like sha256sum does", async () => {
    const text = await mx("load", oneFile(), "--digest", "--include", "bias", "--threads", "1", "--timeout", "20");
    expect(text).toContain(`${sha256(pattern("bias", 10))}  bias\n`);
    expect(text).toMatch(/^loaded\s+1 tensor\(s\), 10 bytes/m);
    expect(text).toMatch(/^driver\s+\S+/m);
  });
});

describe("mx verify", () => {
  it("checks the bytes against a SHA256SUMS", async () => {
    const file = oneFile();
    const digest = sha256(buildSafetensors(tensors, { metadata: { format: "pt" } }));
    writeFileSync(join(file, "../SHA256SUMS"), `${digest}  model.safetensors\n`);
    const found = await mxJson("verify", file);
    expect(found).toMatchObject({ structure: "ok", shards: [{ name: "model.safetensors", status: "ok", sha256: digest }] });
    expect(await mx("verify", file)).toMatch(/^model\.safetensors\s.*ok\s+ok\s+SHA256SUMS \(sha256\)$/m);
  });

  it("checks the bytes against the names of the Hub's cache", async () => {
    const folder = temporaryFolder();
    const bytes = buildSafetensors(tensors);
    mkdirSync(join(folder, "blobs"));
    mkdirSync(join(folder, "snapshots/main"), { recursive: true });
    writeFileSync(join(folder, "blobs", sha256(bytes)), bytes);
    symlinkSync(`../../blobs/${sha256(bytes)}`, join(folder, "snapshots/main/model.safetensors"));
    const found = await mxJson("verify", join(folder, "snapshots/main"));
    expect(found.shards).toMatchObject([{ status: "ok", expected: [{ source: "Hub cache" }] }]);
  });

  it("tells when nobody published a digest", async () => {
    expect((await mxJson("verify", twoShards())).shards).toMatchObject([{ status: "unverified" }, { status: "unverified" }]);
  });

  it("makes unverified a failure under --require, and shows why", async () => {
    const file = oneFile();
    writeFileSync(join(file, "../SHA256SUMS"), "what is this\n");
    const { code, stdout, stderr } = await runMx(["verify", "--require", file, "--json"]);
    expect(code).toBe(65);
    expect(JSON.parse(stdout).shards).toMatchObject([{ status: "unverified", reason: "SHA256SUMS holds no digest" }]);
    expect(JSON.parse(stderr).error).toMatchObject({ code: "ERR_VERIFY_UNVERIFIED", file, unverified: 1 });
  });

  it("ends with 65 for a mismatch, and tells both digests", async () => {
    const file = oneFile();
    const digest = sha256(buildSafetensors(tensors, { metadata: { format: "pt" } }));
    writeFileSync(join(file, "../SHA256SUMS"), `${"0".repeat(64)}  model.safetensors\n`);
    const { code, stdout, stderr } = await runMx(["verify", file, "--json"]);
    expect(code).toBe(65);
    expect(JSON.parse(stdout).shards).toMatchObject([{ status: "mismatch" }]);
    expect(JSON.parse(stderr).error).toMatchObject({ code: "ERR_VERIFY_MISMATCH", file, sha256: digest });
  });
});

describe("mx sample", () => {
  it("writes what mx load takes", async () => {
    const folder = join(temporaryFolder(), "new");
    const written = await mxJson("sample", folder, "--shape", "many-small", "--bytes", "1MiB", "--shards", "3", "--seed", "5");
    expect(written).toMatchObject({ tensorCount: 3050, shape: "many-small", seed: 5 });
    expect(written.files).toHaveLength(3);
    const loaded = await mxJson("load", folder);
    expect(loaded.report).toMatchObject({ tensors: 3050, bytes: written.byteLength });
  });

  it("says in a line what it wrote", async () => {
    expect(await mx("sample", temporaryFolder(), "--bytes", "64KiB")).toMatch(/^21 tensors, 64 KiB, in 1 file\(s\) in /);
  });
});

describe("mx probe", () => {
  it("looks a repository up in the Hub's cache", async () => {
    const cache = temporaryFolder();
    const snapshot = join(cache, "models--org--name/snapshots", "a".repeat(40));
    mkdirSync(snapshot, { recursive: true });
    writeFileSync(join(snapshot, "model.safetensors"), buildSafetensors({ t: { dtype: "U8", shape: [1] } }));
    const { code, stdout } = await runMx(["probe", "org/name", "--json"], { env: { HF_HUB_CACHE: cache } });
    expect([code, JSON.parse(stdout).path]).toEqual([0, snapshot]);
  });

  it("tells what this machine can do, of a path too", async () => {
    expect(await mxJson("probe")).toBeTypeOf("object");
    const text = await mx("probe", temporaryFolder());
    expect(text).toContain("io_uring");
  });

  it("tells what reads straight to a GPU need", async () => {
    vi.stubEnv("MX_NIXL_LIBRARY", "/nowhere/libnixl_capi.so");
    const { findings, defaults } = await mxJson("probe");
    expect(findings.map(({ name }: { name: string }) => name)).toEqual(
      expect.arrayContaining(["nixl", "cuda", "nvidia_fs", "p2pdma", "cufile", "cufile-configuration"]),
    );
    const nixl = findings.find(({ name }: { name: string }) => name === "nixl");
    expect(nixl).toMatchObject({ found: false, remedy: expect.stringContaining("pip install nixl-cu12") });
    expect(defaults.gpuReads).toBeTypeOf("string");
  });
});

describe("mx bench", () => {
  it("times every copying driver against plain reads", async () => {
    const found = await mxJson("bench", oneFile(), "--rounds", "2");
    const warm = found.rows.filter(({ cache }: { cache: string }) => cache === "warm");
    expect(warm.map(({ name }: { name: string }) => name)).toEqual(["plain read", "auto", "pread", "io_uring"]);
    expect(warm[0].ratioToPlain).toBe(1);
    // The ratio is that of the very speeds shown: one that is above plain read's is never told as
    // the slower one.
    for (const { ms, bytesPerSecond, ratioToPlain } of warm) {
      expect(ratioToPlain).toBeCloseTo(bytesPerSecond / warm[0].bytesPerSecond, 9);
      expect(ratioToPlain).toBeCloseTo(warm[0].ms / ms, 9);
    }
    expect(await mx("bench", oneFile(), "--rounds", "1")).toMatch(/^warm\s+pread\s.*\d\.\d\dx as fast$/m);
  });
});
