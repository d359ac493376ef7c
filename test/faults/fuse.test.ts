import { createHash } from "node:crypto";
import { readdirSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, it } from "vitest";
import { openCheckpoint } from "../../src/checkpoint/open.js";
import { loadCheckpoint } from "../../src/loader/load-checkpoint.js";
import { streamCheckpoint } from "../../src/loader/stream-checkpoint.js";
import { collectEvents } from "../support/events.js";
import { mountFuse } from "../support/fuse.js";
import { errorFrom, evict, ioUringRefusal, type Tensors, writeShards } from "../support/loading.js";
import { runMx, runNode } from "../support/run-node.js";
import { buildSafetensors, pattern } from "../support/safetensors.js";
import { randomStream } from "../support/seed.js";
import { unavailable } from "../support/unavailable.js";

const MIB = 2 ** 20;
const tensors: Tensors = {
  first: { dtype: "U8", shape: [3 * MIB] },
  small: { dtype: "U8", shape: [777] },
  last: { dtype: "U8", shape: [2 * MIB] },
};
const file = "model-1.safetensors";

/** A folder with one shard, whose bytes are what {@link pattern} gives for the names. */
function backing(): string {
  const folder = writeShards([tensors]);
  evict(...readdirSync(folder).map((name) => join(folder, name)));
  return folder;
}

function sha256(bytes: Buffer): string {
  return createHash("sha256").update(bytes).digest("hex");
}

/** Whether every tensor has the bytes of its name, followed by `suffix`. */
function isWhole(model: Awaited<ReturnType<typeof loadCheckpoint>>, suffix = ""): boolean {
  return [...model.tensors].every(([name, tensor]) => pattern(name + suffix, tensor.byteLength).equals(tensor.bytes()));
}

describe("files on FUSE with direct I/O, which io_uring reads wrongly without an error", () => {
  beforeEach((context) => {
    // Nothing is read by it then, and its name gives another error.
    if (ioUringRefusal() !== "") unavailable(context, `io_uring is refused (${ioUringRefusal()})`);
  });

  it.for([70_001, 4096])("are right under auto where reads come short, %i bytes", async (short, context) => {
    const { path } = await mountFuse(context, backing(), { direct: 1, short });
    await using model = await loadCheckpoint(path);
    expect(isWhole(model)).toBe(true);
    expect(model.report.shards[0]?.used).not.toContain("io_uring");
    expect(model.report.shards[0]?.reason).toContain("io_uring is not known to be sound on fuse: direct reads by threads");
  });

  it.for(["auto", "pread"] as const)("give the server's error, by the driver %s", async (driver, context) => {
    const { path } = await mountFuse(context, backing(), { direct: 1, fail: 2 * MIB });
    const error = await errorFrom(loadCheckpoint(path, { driver }));
    expect(error).toMatchObject({ code: "ERR_TRANSFER_READ", errno: "EIO" });
    await error.settled;
  });

  it("are refused to the driver io_uring, with the reason", async (context) => {
    const { path } = await mountFuse(context, backing(), { direct: 1 });
    const error = await errorFrom(loadCheckpoint(path, { driver: "io_uring" }));
    expect(error).toMatchObject({ code: "ERR_TRANSFER_IO_URING_UNSOUND", fileSystem: "fuse", file: join(path, file) });
    await error.settled;
  });

  it("are right in a stream, and by the command, where reads come short", async (context) => {
    const { path } = await mountFuse(context, backing(), { direct: 1, short: 9999 });
    const streamed: string[] = [];
    for await (const tensor of streamCheckpoint(path, { maxBytes: 4 * MIB })) {
      if (pattern(tensor.name, tensor.byteLength).equals(tensor.bytes())) streamed.push(tensor.name);
    }
    expect(streamed.sort()).toEqual(["first", "last", "small"]);
    const { stdout } = await runMx(["load", path, "--digest", "--json"]);
    const digests = (JSON.parse(stdout).tensors as { name: string; sha256: string }[]).map(({ name, sha256 }) => [name, sha256]);
    expect(digests).toEqual(Object.entries(tensors).map(([name, { shape }]) => [name, sha256(pattern(name, shape[0] ?? 0))]));
  });
});

it("a FUSE mount that refuses O_DIRECT is read buffered, and the report says why", async (context) => {
  const { path } = await mountFuse(context, backing(), { odirect: "einval" });
  await using model = await loadCheckpoint(path);
  expect(isWhole(model)).toBe(true);
  expect(model.report.shards[0]).toMatchObject({ used: ["buffered"], reason: expect.stringMatching(/O_DIRECT|direct/) });
});

it("a FUSE mount that answers slowly ends by the deadline, and every read is over then", async (context) => {
  const { path } = await mountFuse(context, backing(), { delay: 40 });
  const opened = await openCheckpoint(path);
  const error = await errorFrom(loadCheckpoint(opened, { timeoutMs: 60 }));
  expect(error).toMatchObject({ code: "ERR_TRANSFER_TIMEOUT" });
  await error.settled;
});

it.for(["the index of a folder", "a header"])(
  "a process ends while a file system hangs in the read of %s, once openCheckpoint is aborted",
  async (what, context) => {
    const { path } = await mountFuse(context, backing(), { delay: 600_000 });
    const script = `
    import { openCheckpoint } from "modelexpress-client";
    const controller = new AbortController();
    const opening = openCheckpoint(process.argv[2], { signal: controller.signal });
    setTimeout(() => controller.abort(), 100);
    console.log(await opening.catch(({ code }) => code));
  `;
    const { code, stdout } = await runNode(script, { args: [what === "a header" ? join(path, file) : path] });
    expect({ code, stdout }).toEqual({ code: 0, stdout: "ERR_ABORTED\n" });
  },
);

it("a file that changes, grows, goes or is replaced at any read gives an error or right bytes, never a mixture", {
  timeout: 60_000,
}, async (context) => {
  const random = randomStream();
  for (let round = 0; round < 24; round++) {
    const folder = backing();
    const renamed = Object.fromEntries(
      Object.entries(tensors).map(([name, spec]) => [name, { ...spec, bytes: pattern(`${name}.new`, spec.shape[0] ?? 0) }]),
    );
    writeFileSync(join(folder, `${file}.new`), buildSafetensors(renamed));
    const event = (["damage", "grow", "replace", "remove", "unmount"] as const)[random.below(5)] ?? "damage";
    const options = { at: 1 + random.below(60), event, ...(random.below(2) === 1 && { direct: 1 as const }) };
    const mount = await mountFuse(context, folder, options);
    const told = JSON.stringify(options);
    try {
      await using model = await loadCheckpoint(mount.path, { timeoutMs: 20_000 });
      expect(isWhole(model) || isWhole(model, ".new"), told).toBe(true);
    } catch (thrown) {
      const error = thrown as { code?: string; settled?: Promise<void> };
      expect(error.code, `${told}: ${String(thrown)}`).toMatch(/^ERR_(TRANSFER|CHECKPOINT)_(?!TIMEOUT)/);
      await error.settled;
    }
    await mount.unmount();
  }
});

describe("a FUSE mount that does not keep what tells a file again", () => {
  it.for([
    { options: { ino: "relookup" }, identityNotKept: ["inode"] },
    { options: { mtime: "now" }, identityNotKept: ["mtime"] },
    { options: { mtime: "trunc" }, identityNotKept: ["mtime"] },
    { options: { ino: "relookup", mtime: "now", direct: 1 }, identityNotKept: ["inode", "mtime"] },
    { options: {}, identityNotKept: [] },
  ] as const)("is read right, and the report says what was not kept: $options", async ({ options, identityNotKept }, context) => {
    const events = collectEvents();
    // A private mapping needs the page cache, which a mount with direct I/O has not.
    const drivers = (["auto", "pread", "map"] as const).filter((driver) => driver !== "map" || !("direct" in options));
    for (const driver of drivers) {
      const { path } = await mountFuse(context, backing(), options);
      await using model = await loadCheckpoint(path, { driver });
      expect({ driver, right: isWhole(model), told: model.report.shards[0]?.identityNotKept }).toEqual({
        driver,
        right: true,
        told: identityNotKept,
      });
    }
    const told = events.filter(({ event }) => event === "load.identity-not-kept").map(({ what }) => what);
    expect(told).toEqual(identityNotKept.length === 0 ? [] : drivers.map(() => identityNotKept));
  });

  it("is read right as a stream", async (context) => {
    const { path } = await mountFuse(context, backing(), { ino: "relookup", mtime: "now" });
    const right: string[] = [];
    for await (const tensor of streamCheckpoint(path, { maxBytes: 4 * MIB })) {
      if (pattern(tensor.name, tensor.byteLength).equals(tensor.bytes())) right.push(tensor.name);
    }
    expect(right.sort()).toEqual(["first", "last", "small"]);
  });

  it("is said by the command", async (context) => {
    const { path } = await mountFuse(context, backing(), { ino: "relookup", mtime: "now" });
    const { code, stdout } = await runMx(["load", path]);
    expect({ code, stdout: stdout.replaceAll(/\s+/g, " ") }).toMatchObject({
      code: 0,
      stdout: expect.stringContaining("its file system keeps no inode numbers and no times of modification"),
    });
  });

  it("gives an error when the file has another header than the planned one", async (context) => {
    const folder = backing();
    const { path } = await mountFuse(context, folder, { ino: "relookup", mtime: "now" });
    const opened = await openCheckpoint(path);
    // As long as the first, with other names.
    const renamed = Object.fromEntries(Object.entries(tensors).map(([name, spec]) => [name.toUpperCase(), spec]));
    writeFileSync(join(folder, file), buildSafetensors(renamed));
    const error = await errorFrom(loadCheckpoint(opened));
    expect(error).toMatchObject({ code: "ERR_TRANSFER_FILE_CHANGED", file: join(path, file) });
    expect(error.message).toContain("was replaced by another file since its header was read");
    await error.settled;
  });

  it("gives an error when the file was written since its header was read", async (context) => {
    const folder = backing();
    const { path } = await mountFuse(context, folder, { ino: "relookup" });
    const opened = await openCheckpoint(path);
    const { atimeNs, mtimeNs } = statSync(join(folder, file), { bigint: true });
    utimesSync(join(folder, file), Number(atimeNs / 1_000_000_000n), Number(mtimeNs / 1_000_000_000n) - 7);
    const error = await errorFrom(loadCheckpoint(opened));
    expect(error).toMatchObject({ code: "ERR_TRANSFER_FILE_CHANGED", file: join(path, file) });
    expect(error.message).toContain("was written since its header was read");
    await error.settled;
  });
});
