import { createHash } from "node:crypto";
import { chmodSync, mkdirSync, symlinkSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { folderOf } from "../support/folders.js";
import { runMx } from "../support/run-node.js";
import { buildSafetensors, writeIndex } from "../support/safetensors.js";
import { unavailable } from "../support/unavailable.js";

const bytes = buildSafetensors({ w: { dtype: "U8", shape: [64] } });
const damaged = Buffer.from(bytes).fill(0xff, bytes.length - 1);
const digest = (algorithm: string, of: Uint8Array = bytes) => createHash(algorithm).update(of).digest("hex");
const gitBlob = createHash("sha1").update(`blob ${bytes.length}\0`).update(bytes).digest("hex");

/** Exit code, shards and error of `mx verify --json`. */
async function verify(path: string, ...flags: string[]) {
  const { code, stdout, stderr } = await runMx(["verify", path, "--json", ...flags]);
  return { code, shards: JSON.parse(stdout).shards, error: stderr === "" ? undefined : JSON.parse(stderr).error };
}

describe("mx verify hashes as the list wants it", () => {
  it.each([
    ["SHA512SUMS", "sha512", digest("sha512")],
    ["sha384sums.txt", "sha384", digest("sha384")],
    ["sha224sums.txt", "sha224", digest("sha224")],
    ["MD5SUMS", "md5", digest("md5")],
    ["sha1sum.txt", "sha1", digest("sha1")],
    ["b2sums.txt", "blake2b512", digest("blake2b512")],
  ])("%s", async (list, algorithm, right) => {
    const text = `${right}  model.safetensors\n`;
    expect(await verify(folderOf({ "model.safetensors": bytes, [list]: text }))).toMatchObject({
      code: 0,
      shards: [{ status: "ok", digests: { [algorithm]: right }, expected: [{ algorithm, source: list }] }],
    });
    expect(await verify(folderOf({ "model.safetensors": damaged, [list]: text }))).toMatchObject({
      code: 65,
      shards: [{ status: "mismatch" }],
      error: { code: "ERR_VERIFY_MISMATCH" },
    });
  });

  it("and the Hub's cache, by SHA-256 or Git object name", async () => {
    for (const [name, algorithm] of [
      [gitBlob, "git-blob"],
      [digest("sha256"), "sha256"],
    ] as const) {
      for (const [contents, code, status] of [
        [bytes, 0, "ok"],
        [damaged, 65, "mismatch"],
      ] as const) {
        const folder = folderOf({ [`blobs/${name}`]: contents });
        mkdirSync(join(folder, "snapshots/main"), { recursive: true });
        symlinkSync(`../../blobs/${name}`, join(folder, "snapshots/main/model.safetensors"));
        expect(await verify(join(folder, "snapshots/main"))).toMatchObject({ code, shards: [{ status, expected: [{ algorithm }] }] });
      }
    }
  });
});

describe("what contradicts itself is a mismatch", () => {
  const wrong = "0".repeat(64);
  it.each<[string, Readonly<Record<string, string>>]>([
    ["two lists", { SHA256SUMS: digest("sha256"), "checksums.txt": wrong }],
    ["lists of two algorithms", { MD5SUMS: digest("md5"), SHA256SUMS: wrong }],
    ["two lines of a list", { SHA256SUMS: `${digest("sha256")}  model.safetensors\n${wrong}` }],
    ["the list of the folder and that of the file", { SHA256SUMS: wrong, "model.safetensors.sha256": digest("sha256") }],
  ])("%s", async (_, lists) => {
    const files = Object.entries(lists).map(([name, first]) => [name, `${first}  model.safetensors\n`]);
    const found = await verify(folderOf({ "model.safetensors": bytes, ...Object.fromEntries(files) }));
    expect(found).toMatchObject({ code: 65, shards: [{ status: "mismatch" }], error: { code: "ERR_VERIFY_MISMATCH" } });
    expect(found.error.message.includes("what is expected contradicts itself")).toBe(!("MD5SUMS" in lists));
  });

  it("a list and the Hub's cache", async () => {
    const name = digest("sha256");
    const folder = folderOf({ [`blobs/${name}`]: bytes, "snapshots/main/SHA256SUMS": `${wrong}  model.safetensors\n` });
    symlinkSync(`../../blobs/${name}`, join(folder, "snapshots/main/model.safetensors"));
    expect(await verify(join(folder, "snapshots/main"))).toMatchObject({ code: 65, shards: [{ status: "mismatch" }] });
  });
});

it("mx verify of an index finds lists for shards in folders below, beside the index and on the way", async () => {
  const shard = (name: string) => buildSafetensors({ [name]: { dtype: "U8", shape: [3] } });
  const folder = folderOf({ "x/y/1.safetensors": shard("a"), "x/y/2.safetensors": shard("b"), "x/y/3.safetensors": shard("c") });
  const index = join(folder, "m.safetensors.index.json");
  writeIndex(index, { a: "x/y/1.safetensors", b: "x/y/2.safetensors", c: "x/y/3.safetensors" });
  writeFileSync(join(folder, "SHA256SUMS"), `${digest("sha256", shard("a"))}  x/y/1.safetensors\n`);
  writeFileSync(join(folder, "x/SHA512SUMS"), `${digest("sha512", shard("b"))}  y/2.safetensors\n`);
  for (const path of [index, folder]) {
    expect(await verify(path)).toMatchObject({
      code: 0,
      shards: [
        { name: "x/y/1.safetensors", status: "ok", expected: [{ source: "SHA256SUMS" }] },
        { name: "x/y/2.safetensors", status: "ok", expected: [{ source: "SHA512SUMS" }] },
        { name: "x/y/3.safetensors", status: "unverified", reason: "SHA512SUMS does not name it; SHA256SUMS does not name it" },
      ],
    });
  }
  expect(await verify(index, "--require")).toMatchObject({ code: 65, error: { code: "ERR_VERIFY_UNVERIFIED", unverified: 1 } });
});

describe("a list that is of no use does not end mx verify", () => {
  const good = { "m-1-of-2.safetensors": bytes, "m-2-of-2.safetensors": buildSafetensors({ v: { dtype: "U8", shape: [1] } }) };
  const listOfFirst = { "m-1-of-2.safetensors.sha256": `${digest("sha256")}\n` };

  it.each<[string, (folder: string) => void, string]>([
    ["a folder", (folder) => mkdirSync(join(folder, "SHA256SUMS")), "SHA256SUMS cannot be read: it is no regular file"],
    ["a link that leads nowhere", (folder) => symlinkSync("none", join(folder, "SHA256SUMS")), "SHA256SUMS cannot be read: ENOENT"],
    [
      "too long",
      (folder) => {
        writeFileSync(join(folder, "SHA256SUMS"), "");
        truncateSync(join(folder, "SHA256SUMS"), 2 ** 26 + 1);
      },
      "SHA256SUMS cannot be read: it is longer than 67108864 bytes",
    ],
    ["free text", (folder) => writeFileSync(join(folder, "SHA256SUMS"), "none yet\n"), "SHA256SUMS holds no digest"],
    ["bytes", (folder) => writeFileSync(join(folder, "SHA256SUMS"), Buffer.alloc(100, 0xff)), "SHA256SUMS holds no digest"],
    [
      "a digest cut short",
      (folder) => writeFileSync(join(folder, "SHA256SUMS"), "abc  m-2-of-2.safetensors\n"),
      "SHA256SUMS names it, but with no digest that can be read",
    ],
  ])("because it is %s", async (_, make, reason) => {
    const folder = folderOf({ ...good, ...listOfFirst });
    make(folder);
    expect(await verify(folder)).toMatchObject({
      code: 0,
      shards: [{ status: "ok" }, { status: "unverified", reason: expect.stringContaining(reason) }],
    });
    expect((await verify(folder, "--require")).code).toBe(65);
  });

  it("because this user may not read it", async (context) => {
    if (process.getuid?.() !== 0) unavailable(context, "another user needs root");
    const folder = folderOf({ ...good, SHA256SUMS: "" });
    chmodSync(folder, 0o755);
    chmodSync(join(folder, "SHA256SUMS"), 0);
    const under = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    const { code, stdout } = await runMx(["verify", folder, "--json"], { under });
    const reason = `${join(folder, "SHA256SUMS")} cannot be read: EACCES`;
    expect([code, JSON.parse(stdout).shards]).toMatchObject([
      0,
      [
        { status: "unverified", reason },
        { status: "unverified", reason },
      ],
    ]);
  });
});

it("mx verify says of an unverified file that parts of it may never have been written", async () => {
  const whole = buildSafetensors({ w: { dtype: "U8", shape: [8 * 2 ** 20] } });
  const folder = folderOf({ "model.safetensors": whole.subarray(0, 4096) });
  truncateSync(join(folder, "model.safetensors"), whole.length);
  const [shard] = (await verify(folder)).shards;
  expect(shard).toMatchObject({ status: "unverified" });
  expect(shard.reason).toMatch(/; only .* of its 8 MiB are stored, the rest may be zeros that a download never filled$/);
});

it("mx verify reads names as sha256sum escapes them, and as Windows writes folders", async () => {
  const list = (right: string) => `\\${right}  a\\\\b.safetensors\n${digest("sha256")}  .\\c.safetensors\n`;
  const files = { "a\\b.safetensors": bytes, "c.safetensors": bytes };
  const folder = folderOf({ ...files, SHA256SUMS: list(digest("sha256")) });
  for (const name of Object.keys(files)) expect(await verify(join(folder, name))).toMatchObject({ code: 0, shards: [{ status: "ok" }] });
  const wrong = folderOf({ ...files, SHA256SUMS: list("0".repeat(64)) });
  expect(await verify(join(wrong, "a\\b.safetensors"))).toMatchObject({ code: 65, shards: [{ status: "mismatch" }] });
});

it("mx verify checks an index whose digest is known, and asks for none", async () => {
  const index = JSON.stringify({ metadata: {}, weight_map: { w: "model.safetensors" } });
  const lists = (of: string) => `${digest("sha256")}  model.safetensors\n${of}`;
  const folder = (list: string) => folderOf({ "model.safetensors": bytes, "model.safetensors.index.json": index, SHA256SUMS: list });
  const named = (hex: string) => `${hex}  model.safetensors.index.json\n`;
  const run = async (list: string) => {
    const { code, stdout } = await runMx(["verify", folder(list), "--json", "--require"]);
    return { code, status: JSON.parse(stdout).index?.status ?? null };
  };
  expect(await run(lists(named(digest("sha256", Buffer.from(index)))))).toEqual({ code: 0, status: "ok" });
  expect(await run(lists(named("0".repeat(64))))).toEqual({ code: 65, status: "mismatch" });
  expect(await run(lists(""))).toEqual({ code: 0, status: null });
});

describe("weights that a list names and that are not there", () => {
  const line = (name: string) => `${digest("sha256")}  ${name}\n`;
  const here = { "model.safetensors": bytes };
  const gone = (folder: string, name: string, source = "SHA256SUMS") => ({
    name,
    file: join(folder, name),
    byteLength: null,
    status: "missing",
    reason: `not there, but named in ${source}`,
    digests: {},
    expected: [{ algorithm: "sha256", digest: digest("sha256"), source }],
  });

  it.each<[string, Readonly<Record<string, string>>, string, string?]>([
    ["beside others", { SHA256SUMS: line("model.safetensors") + line("other.safetensors") }, "other.safetensors"],
    ["by a path of another machine", { SHA256SUMS: line("/build/out/other.safetensors") }, "other.safetensors"],
    ["by a path of Windows", { SHA256SUMS: line("fp16\\other.safetensors") }, "fp16/other.safetensors"],
    ["in a folder below", { SHA256SUMS: line("./fp16/model-00001-of-00001.safetensors") }, "fp16/model-00001-of-00001.safetensors"],
    ["as an index", { SHA256SUMS: line("model.safetensors.index.json") }, "model.safetensors.index.json"],
    ["in its own list", { "other.safetensors.sha256": digest("sha256") }, "other.safetensors", "other.safetensors.sha256"],
  ])("are missing: %s", async (_, lists, name, source) => {
    const folder = folderOf({ ...here, ...lists });
    const { code, shards, error } = await verify(folder);
    expect([code, shards.at(-1)]).toEqual([65, gone(folder, name, source)]);
    expect(error).toMatchObject({ code: "ERR_VERIFY_MISSING", file: join(folder, name), missing: 1 });
    const text = await runMx(["verify", folder]);
    expect(text.stdout).toMatch(new RegExp(`^${name} +- +- +missing +not there, but named in `, "m"));
    expect(await verify(folder, "--ignore-missing")).toMatchObject({ code: 0, shards: [{ name: "model.safetensors" }] });
  });

  it("are missing where a link leads to nothing, and come behind a mismatch", async () => {
    const folder = folderOf({ "model.safetensors": damaged, SHA256SUMS: line("model.safetensors") + line("other.safetensors") });
    symlinkSync("nowhere", join(folder, "other.safetensors"));
    const { code, shards, error } = await verify(folder, "--weights", "model");
    expect([code, shards.length, error.code]).toEqual([65, 1, "ERR_VERIFY_MISMATCH"]);
  });

  it("are nobody's where other files are named, one file is asked for, or some are picked", async () => {
    const ok = { code: 0, shards: [{ status: "ok" }] };
    const both = line("model.safetensors") + line("other.safetensors");
    expect(await verify(folderOf({ ...here, SHA256SUMS: line("model.safetensors") + line("README.md") }))).toMatchObject(ok);
    expect(await verify(join(folderOf({ ...here, SHA256SUMS: both }), "model.safetensors"))).toMatchObject(ok);
    expect(await verify(folderOf({ ...here, SHA256SUMS: both }), "--weights", "model")).toMatchObject(ok);
    expect(await verify(folderOf({ ...here, SHA256SUMS: line("/build/out/model.safetensors") }))).toMatchObject(ok);
  });
});
