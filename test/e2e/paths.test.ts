import { chmodSync, mkdirSync, renameSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { temporaryFolder } from "../support/folders.js";
import { type RunOptions, runMx } from "../support/run-node.js";
import { buildSafetensors } from "../support/safetensors.js";
import { unavailable } from "../support/unavailable.js";

const bytes = buildSafetensors({ w: { dtype: "U8", shape: [4] } });

/** A folder that every user may enter, with a checkpoint. */
function sample(): string {
  const folder = temporaryFolder();
  chmodSync(folder, 0o755);
  mkdirSync(join(folder, "good"));
  writeFileSync(join(folder, "good/model.safetensors"), bytes);
  return folder;
}

async function failing(args: string[], options: RunOptions) {
  const { code, stderr } = await runMx([...args, "--json"], options);
  return { exit: code, ...JSON.parse(stderr).error };
}

/** Runs the command where a shell script leads to; `$0` is the first of `args`. */
const shell = (script: string, folder: string): RunOptions => ({ under: ["sh", "-c", `cd "$0" && ${script}`, folder] });

describe("a working directory that was removed", () => {
  const gone = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"';

  it.each(["inspect", "load", "verify", "plan"])("is no matter to mx %s of an absolute path", async (command) => {
    const folder = sample();
    expect(await runMx([command, join(folder, "good")], shell(gone, folder))).toMatchObject({ code: 0, stderr: "" });
  });

  it("makes a relative path a clear error", async () => {
    const error = await failing(["inspect", "../good"], shell(gone, sample()));
    expect(error).toMatchObject({ exit: 66, code: "ERR_CHECKPOINT_NOT_FOUND", file: "../good", operation: "getcwd", errno: "ENOENT" });
    expect(error.message).toMatch(/the working directory of this process is gone.*give an absolute path$/);
  });

  it("is what mx probe asks about all the same", async () => {
    const { code, stdout } = await runMx(["probe", "--json"], { ...shell(gone, sample()), timeoutMs: 60_000 });
    expect([code, JSON.parse(stdout).path]).toEqual([0, "."]);
  });
});

describe("names that are no UTF-8", () => {
  const hint = expect.stringContaining(
    "stands for bytes that are no UTF-8: rename what has them in its name, or go there by a symbolic link",
  );
  const bad = (folder: string, after = "") => Buffer.concat([Buffer.from(`${folder}/bad`), Buffer.from([0xff]), Buffer.from(after)]);

  it("are a clear error as a path, as the working directory, and in a folder", async () => {
    const folder = sample();
    renameSync(join(folder, "good"), bad(folder));
    const expected = { exit: 66, code: "ERR_CHECKPOINT_NOT_FOUND", message: hint };
    expect(await failing(["inspect"], shell('exec "$@" bad*', folder))).toMatchObject(expected);
    expect(await failing(["inspect", "model.safetensors"], shell('cd bad* && exec "$@"', folder))).toMatchObject(expected);
    const below = temporaryFolder();
    writeFileSync(bad(below, ".safetensors"), bytes);
    expect(await failing(["inspect", below], {})).toMatchObject(expected);
  });

  it("can be reached by a link, and harm no other weights beside them", async () => {
    const folder = sample();
    renameSync(join(folder, "good"), bad(folder));
    symlinkSync(bad("."), join(folder, "link"));
    writeFileSync(bad(join(folder, "link"), ".safetensors"), bytes);
    expect(await runMx(["load", join(folder, "link")])).toMatchObject({ code: 0, stderr: "" });
  });
});

describe("folders that this user may not search", () => {
  const asNobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

  function closed(mode: number): string {
    const folder = sample();
    mkdirSync(join(folder, "closed"));
    renameSync(join(folder, "good"), join(folder, "closed/in"));
    chmodSync(join(folder, "closed"), mode);
    return folder;
  }

  it("are named, wherever they are above the file", async (context) => {
    if (process.getuid?.() !== 0) unavailable(context, "another user needs root");
    const folder = closed(0o700);
    const message = expect.stringContaining(`the folder ${join(folder, "closed")} may not be searched by this user`);
    const expected = { exit: 66, code: "ERR_CHECKPOINT_PERMISSION", errno: "EACCES", message };
    const inside = join(folder, "closed/in");
    for (const path of [inside, join(inside, "model.safetensors")]) {
      expect(await failing(["inspect", path], { under: asNobody })).toMatchObject(expected);
    }
    const { under = [] } = shell('exec "$@"', inside);
    expect(await failing(["inspect", "model.safetensors"], { under: [...under, ...asNobody] })).toMatchObject(expected);
  });

  it("may be entered but not listed: then a path below works, and the error says so", async (context) => {
    if (process.getuid?.() !== 0) unavailable(context, "another user needs root");
    const folder = sample();
    chmodSync(join(folder, "good"), 0o711);
    const error = await failing(["inspect", join(folder, "good")], { under: asNobody });
    expect(error).toMatchObject({ code: "ERR_CHECKPOINT_PERMISSION", operation: "readdir" });
    expect(error.message).toMatch(/its files can be given by their own paths, if they are known$/);
    const file = join(folder, "good/model.safetensors");
    expect(await runMx(["load", file], { under: asNobody })).toMatchObject({ code: 0, stderr: "" });
    expect(JSON.parse((await runMx(["verify", file, "--json"], { under: asNobody })).stdout).shards).toMatchObject([
      { status: "unverified", reason: `${join(folder, "good")} cannot be searched for lists (EACCES)` },
    ]);
  });
});
