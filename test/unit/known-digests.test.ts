import { execFileSync } from "node:child_process";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { knownDigests, parseSums } from "../../src/cli/known-digests.js";
import { temporaryFolder } from "../support/folders.js";

const a = "a".repeat(64);
const b = "b".repeat(64);

describe("parseSums", () => {
  it("reads every form that sha256sum writes", () => {
    const text = [
      `${a}  text mode`,
      `${b} *binary mode`,
      `${a.toUpperCase()}  ./folder.safetensors`,
      `\\${b}  back\\\\slash\\nline`,
      `SHA256 (bsd (1).safetensors) = ${a}`,
      "",
      "# a comment",
      `${b}  windows\r`,
    ].join("\n");
    expect([...parseSums(text, "SHA256SUMS")]).toEqual([
      ["text mode", a],
      ["binary mode", b],
      ["folder.safetensors", a],
      ["back\\slash\nline", b],
      ["bsd (1).safetensors", a],
      ["windows", b],
    ]);
  });

  it.each(["nonsense", `${"a".repeat(63)}  short`, a, `${a}  `, `${a} x`])("refuses the line %j", (line) => {
    expect(() => parseSums(`${b}  fine\n${line}\n`, "/x/SHA256SUMS")).toThrow(
      expect.objectContaining({ code: "ERR_VERIFY_SUMS_INVALID", file: "/x/SHA256SUMS", line: 2 }),
    );
  });
});

describe("knownDigests", () => {
  it("knows a blob of the Hub's cache by its name", async () => {
    const folder = temporaryFolder();
    mkdirSync(join(folder, "blobs"));
    mkdirSync(join(folder, "snapshots/main"), { recursive: true });
    const link = (name: string, blob: string) => {
      symlinkSync(`../../blobs/${blob}`, join(folder, "snapshots/main", name));
      return join(folder, "snapshots/main", name);
    };
    expect(await knownDigests(link("large", a))).toEqual([{ sha256: a, source: "Hub cache" }]);
    // A small file's blob has the name of a Git object.
    expect(await knownDigests(link("small", "c".repeat(40)))).toEqual([]);
  });

  it("knows what a SHA256SUMS beside the file names", async () => {
    const folder = temporaryFolder();
    const file = join(folder, "model.safetensors");
    expect(await knownDigests(file)).toEqual([]);
    writeFileSync(join(folder, "SHA256SUMS"), `${b}  model.safetensors\n`);
    expect(await knownDigests(file)).toEqual([{ sha256: b, source: "SHA256SUMS" }]);
    expect(await knownDigests(join(folder, "other.safetensors"))).toEqual([]);
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
