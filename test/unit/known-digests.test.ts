import { execFileSync } from "node:child_process";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { isDigestList, listText, parseDigests } from "../../src/cli/digest-lists.js";
import { knownDigests, type ReadLists } from "../../src/cli/known-digests.js";
import { temporaryFolder } from "../support/folders.js";

const a = "a".repeat(64);
const b = "b".repeat(64);

describe("parseDigests", () => {
  it("reads every form that sha256sum and its kin write, between free text and signatures", () => {
    const text = [
      "-----BEGIN PGP SIGNED MESSAGE-----",
      "Hash: SHA512",
      `${a}  text mode`,
      `${b} *binary mode`,
      `${a.toUpperCase()}  ./folder.safetensors`,
      `\\${b}  back\\\\slash\\nline`,
      `SHA256 (bsd (1).safetensors) = ${a}`,
      `SHA1 (tagged) = ${"c".repeat(40)}`,
      "# a comment",
      `${b}  windows\r`,
      `${"d".repeat(32)}  md5`,
      `${"e".repeat(128)}  sha512`,
      `${"a".repeat(63)}  short`,
      `sha256:${a}  with algorithm`,
      `SHA256          ${a.toUpperCase()}  C:\\x\\get-filehash  `,
      `before: ${b}`,
      `| table | ${b} |`,
      `SHA512 (wrong length) = ${a}`,
      b,
    ].join("\n");
    expect(parseDigests(text, "SHA256SUMS").map(({ algorithm, digest, path }) => [path, algorithm, digest[0]])).toEqual([
      ["text mode", "sha256", "a"],
      ["binary mode", "sha256", "b"],
      ["./folder.safetensors", "sha256", "a"],
      ["back\\slash\nline", "sha256", "b"],
      ["bsd (1).safetensors", "sha256", "a"],
      ["tagged", "sha1", "c"],
      ["windows", "sha256", "b"],
      ["md5", "md5", "d"],
      ["sha512", "sha512", "e"],
      ["with algorithm", "sha256", "a"],
      ["C:\\x\\get-filehash", "sha256", "a"],
      ["before", "sha256", "b"],
      ["table", "sha256", "b"],
      [undefined, "sha256", "b"],
    ]);
  });

  it("reads byte-order marks and UTF-16", () => {
    const little = Buffer.from(`\ufeff${a}  x`, "utf16le");
    for (const bytes of [Buffer.from(`\ufeff${a}  x`), little, Buffer.from(little).swap16()]) {
      expect(parseDigests(listText(bytes), "SHA256SUMS")).toEqual([{ algorithm: "sha256", digest: a, path: "x" }]);
    }
  });

  it.each(["SHA256SUMS", "sha256sum.txt", "checksums.txt", "MD5SUMS", "model.safetensors.sha256", "SHA256SUMS.asc"])("knows %s", (name) => {
    expect(isDigestList(name)).toBe(true);
  });

  it.each(["model.safetensors", "config.json", "README.txt", ".sha256"])("leaves %s", (name) => {
    expect(isDigestList(name)).toBe(false);
  });
});

describe("knownDigests", () => {
  it("knows a blob of the Hub's cache by any link and by its own path", async () => {
    const folder = temporaryFolder();
    mkdirSync(join(folder, "blobs"));
    mkdirSync(join(folder, "snapshots/main"), { recursive: true });
    writeFileSync(join(folder, "blobs", a), "");
    symlinkSync(`../../blobs/${a}`, join(folder, "snapshots/main/large"));
    symlinkSync(join(folder, "snapshots/main/large"), join(folder, "outer"));
    symlinkSync(`../../blobs/${"c".repeat(40)}`, join(folder, "snapshots/main/small"));
    for (const path of ["snapshots/main/large", "outer", `blobs/${a}`]) {
      expect((await knownDigests(join(folder, path))).digests).toEqual([{ algorithm: "sha256", digest: a, source: "Hub cache" }]);
    }
    const small = await knownDigests(join(folder, "snapshots/main/small"));
    expect(small.digests).toEqual([{ algorithm: "git-blob", digest: "c".repeat(40), source: "Hub cache" }]);
  });

  it.each([
    ["SHA256SUMS", `${b}  model.safetensors\n`],
    ["checksums.txt", `${b}  /build/out/model.safetensors\n`],
    ["sha256sum.txt", `${b}  release\\model.safetensors\n`],
    ["model.safetensors.sha256", `${b}\n`],
  ])("knows what %s names", async (source, text) => {
    const folder = temporaryFolder();
    writeFileSync(join(folder, source), text);
    const expected = [{ algorithm: "sha256", digest: b, source }];
    expect((await knownDigests(join(folder, "model.safetensors"))).digests).toEqual(expected);
    expect((await knownDigests(join(folder, "other.safetensors"))).digests).toEqual([]);
  });

  it("keeps contradictory digests, and takes none that belongs to another folder", async () => {
    const folder = temporaryFolder();
    mkdirSync(join(folder, "fp16"));
    writeFileSync(join(folder, "fp16/x"), "");
    writeFileSync(join(folder, "SHA256SUMS"), `${a}  fp16/x\n${a}  y\n${b}  y\n`);
    expect((await knownDigests(join(folder, "x"))).reason).toBe("SHA256SUMS does not name it");
    expect((await knownDigests(join(folder, "fp16/x"), folder)).digests.map(({ digest }) => digest)).toEqual([a]);
    expect((await knownDigests(join(folder, "y"))).digests.map(({ digest }) => digest)).toEqual([a, b]);
  });

  it("goes on where a list cannot be read, and says why", async () => {
    const folder = temporaryFolder();
    mkdirSync(join(folder, "SHA256SUMS"));
    execFileSync("mkfifo", [join(folder, "checksums.txt")]);
    symlinkSync("md5sums.txt", join(folder, "md5sums.txt"));
    const x = await knownDigests(join(folder, "x"));
    expect(x).toEqual({
      digests: [],
      reason: [
        `${join(folder, "SHA256SUMS")} cannot be read: it is no regular file`,
        `${join(folder, "checksums.txt")} cannot be read: it is no regular file`,
        `${join(folder, "md5sums.txt")} cannot be read: ELOOP`,
      ].join("; "),
    });
    writeFileSync(join(folder, "x.sha256"), a);
    expect((await knownDigests(join(folder, "x"))).digests).toEqual([{ algorithm: "sha256", digest: a, source: "x.sha256" }]);
  });

  it("leaves lists of other files out of the reasons", async () => {
    const folder = temporaryFolder();
    for (const name of ["x", "y"]) writeFileSync(join(folder, name), "");
    writeFileSync(join(folder, "x.sha256"), a);
    expect((await knownDigests(join(folder, "y"))).reason).toBe("no list of digests beside it, and no blob of the Hub's cache");
  });

  it("tells a line that names the file without a digest", async () => {
    const folder = temporaryFolder();
    writeFileSync(join(folder, "SHA256SUMS"), `${a.slice(1)}  x\n${a}  y\n`);
    expect((await knownDigests(join(folder, "x"))).reason).toBe("SHA256SUMS names it, but with no digest that can be read");
  });

  it("looks in every folder between the file and the checkpoint's, and reads each list once", async () => {
    const folder = temporaryFolder();
    mkdirSync(join(folder, "one/two"), { recursive: true });
    for (const name of ["x", "y"]) writeFileSync(join(folder, "one/two", name), "");
    writeFileSync(join(folder, "SHA256SUMS"), `${a}  one/two/x\n`);
    writeFileSync(join(folder, "one/SHA256SUMS"), `${b}  ./two/y\n`);
    const lists: ReadLists = new Map();
    const digest = async (name: string) =>
      (await knownDigests(join(folder, "one/two", name), folder, lists)).digests.map(({ digest }) => digest);
    expect([await digest("x"), await digest("y")]).toEqual([[a], [b]]);
    expect([...lists.keys()].sort()).toEqual([join(folder, "SHA256SUMS"), join(folder, "one/SHA256SUMS")]);
  });
});
