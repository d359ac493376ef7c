import { spawnSync } from "node:child_process";
import { mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { expect, it, onTestFinished, type TestContext } from "vitest";
import { loadCheckpoint } from "../../src/loader/load-checkpoint.js";
import { temporaryFolder } from "../support/folders.js";
import { evict, ioUringRefusal, writeShards } from "../support/loading.js";
import { pattern } from "../support/safetensors.js";
import { unavailable } from "../support/unavailable.js";

const MIB = 2 ** 20;

/** Mounts until the end of the test; where this user may not, the test ends as not available. */
function mount(context: TestContext, ...words: string[]): void {
  const { status, stderr } = spawnSync("mount", words, { encoding: "utf8" });
  if (status !== 0) unavailable(context, `mount ${words.join(" ")}: ${String(stderr).trim()}`);
  onTestFinished(() => {
    spawnSync("umount", ["--lazy", words.at(-1) ?? ""]);
  });
}

/** An overlay over a folder with a checkpoint that the page cache does not hold. */
function overlay(context: TestContext): { lower: string; merged: string } {
  if (ioUringRefusal() !== "") unavailable(context, `io_uring is refused (${ioUringRefusal()})`);
  const lower = writeShards([{ a: { dtype: "U8", shape: [6 * MIB] } }]);
  evict(...readdirSync(lower).map((name) => join(lower, name)));
  const folder = temporaryFolder();
  const [upper, work, merged] = ["upper:1", "work", "merged"].map((name) => join(folder, name)) as [string, string, string];
  for (const made of [upper, work, merged]) mkdirSync(made);
  mount(context, "-t", "overlay", "overlay", "-o", `lowerdir=${lower},upperdir=${upper},workdir=${work}`, merged);
  return { lower, merged };
}

it("an overlay is read as the file system of the layer that holds the file, also right after it was mounted", async (context) => {
  for (let mounts = 0; mounts < 2; mounts++) {
    const { lower, merged } = overlay(context);
    await using direct = await loadCheckpoint(lower);
    evict(...readdirSync(lower).map((name) => join(lower, name)));
    await using model = await loadCheckpoint(merged);
    expect(pattern("a", 6 * MIB).equals(model.requireTensor("a").bytes())).toBe(true);
    expect(model.report.shards[0]?.used).toEqual(direct.report.shards[0]?.used);
    expect(model.report.shards[0]?.reason).toBe(direct.report.shards[0]?.reason);
  }
});

it("an overlay whose layers cannot be seen is read directly by threads", async (context) => {
  const { lower, merged } = overlay(context);
  // As in a container, where the folders of the layers are out of sight.
  mount(context, "-t", "tmpfs", "none", lower);
  await using model = await loadCheckpoint(merged);
  expect(pattern("a", 6 * MIB).equals(model.requireTensor("a").bytes())).toBe(true);
  expect(model.report.shards[0]?.used).not.toContain("io_uring");
  expect(model.report.shards[0]?.reason).toContain("io_uring is not known to be sound on overlayfs: direct reads by threads");
});
