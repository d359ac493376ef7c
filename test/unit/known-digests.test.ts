import { execFileSync } from "node:child_process";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { isDigestList, listText, parseDigests } from "../../src/cli/digest-lists.js";
import { knownDigests } from "../../src/cli/known-digests.js";
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

  it("tells a SHA256SUMS that cannot be read", async () => {
    const folder = temporaryFolder();
    mkdirSync(join(folder, "SHA256SUMS"));
    await expect(knownDigests(join(folder, "x"))).rejects.toMatchObject({ code: "ERR_CHECKPOINT_IO", errno: "EISDIR" });
  });

  it("refuses a SHA256SUMS that would never end", async () => {
    const folder = temporaryFolder();
    execFileSync("mkfifo", [join(folder, "SHA256SUMS")]);
    await expect(knownDigests(join(folder, "x"))).rejects.toMatchObject({
      code: "ERR_CHECKPOINT_IO",
      message: expect.stringContaining("no regular file"),
    });
  });
});
