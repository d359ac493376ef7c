import { appendFileSync, copyFileSync, renameSync, rmSync, truncateSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { VmmArena } from "../../src/arena/arena.js";
import { hostBackend } from "../../src/arena/host-backend.js";
import { openCheckpoint } from "../../src/checkpoint/open.js";
import type { DriverName } from "../../src/envs.js";
import { loadCheckpoint } from "../../src/loader/load-checkpoint.js";
import { driversFilling } from "../../src/transfer/drivers.js";
import {
  beginLoad,
  copyingDrivers,
  errorFrom,
  evict,
  ioUringRefusal,
  planFaults,
  writeCheckpoint,
  writeShards,
} from "../support/loading.js";
import { nixlLibrary, nixlMissing } from "../support/nixl.js";

const MIB = 2 ** 20;
const tensors = { a: { dtype: "U8", shape: [4 * MIB] } } as const;

interface Change {
  readonly title: string;
  apply(file: string): void;
  readonly code: readonly string[];
  readonly message: RegExp;
}

/** What can happen to a file while it is read. */
const changes: readonly Change[] = [
  {
    title: "cut",
    apply: (file) => truncateSync(file, 100_000),
    // Whichever comes first: a read that finds the end, or the look at the file after the last.
    code: ["ERR_TRANSFER_UNEXPECTED_END", "ERR_TRANSFER_FILE_CHANGED"],
    message: /100000 (now|bytes)/,
  },
  {
    title: "extended",
    apply: (file) => appendFileSync(file, "x"),
    code: ["ERR_TRANSFER_FILE_CHANGED"],
    message: /changed its size from \d+ to \d+ bytes/,
  },
  { title: "touched", apply: (file) => utimesSync(file, 1, 1), code: ["ERR_TRANSFER_FILE_CHANGED"], message: /was written/ },
  {
    title: "replaced by a copy",
    apply: (file) => {
      copyFileSync(file, `${file}.new`);
      renameSync(`${file}.new`, file);
    },
    code: ["ERR_TRANSFER_FILE_CHANGED"],
    message: /was replaced by another file/,
  },
  { title: "removed", apply: (file) => rmSync(file), code: ["ERR_TRANSFER_FILE_CHANGED"], message: /went away/ },
];

describe.each(copyingDrivers)("while the driver %s reads it", (driver) => {
  it.each(changes)("a file is $title", async ({ apply, code, message }) => {
    planFaults({ nth: 2, stallMs: 250 });
    using arena = new VmmArena({ backend: hostBackend(), totalBytes: 64 * MIB });
    const file = writeCheckpoint(tensors);
    evict(file);
    const { load, begun } = beginLoad(file, { driver, arena, maxChunkBytes: MIB, threads: 1 });
    await begun;
    apply(file);
    const error = await errorFrom(load);
    expect(code).toContain(error.code);
    expect(error).toMatchObject({ file, name: "TransferError" });
    expect(error.message).toMatch(message);
    await error.settled;
    expect(arena.liveAllocationCount).toBe(0);
  });

  it("it is read while a neighbour changes: that is no matter", async () => {
    const folder = writeShards([{ a: { dtype: "U8", shape: [MIB] } }, { b: { dtype: "U8", shape: [MIB] } }]);
    planFaults({ nth: 1, stallMs: 100 });
    const load = loadCheckpoint(await openCheckpoint(folder), { driver, include: "a" });
    truncateSync(join(folder, "model-2.safetensors"), 5);
    await using model = await load;
    expect(model.tensors.get("a")?.byteLength).toBe(MIB);
  });
});

const impossible: Partial<Record<DriverName, boolean>> = { io_uring: ioUringRefusal() !== "", nixl: nixlMissing !== undefined };

describe.each(driversFilling("host").filter((driver) => impossible[driver] !== true))(
  "between its header and its bytes, by the driver %s",
  (driver: DriverName) => {
    beforeEach(() => {
      vi.stubEnv("MX_NIXL_LIBRARY", nixlLibrary);
    });

    it.each(changes)("a file is $title", async ({ title, apply, message }) => {
      const file = writeCheckpoint(tensors);
      const checkpoint = await openCheckpoint(file);
      apply(file);
      const error = await errorFrom(loadCheckpoint(checkpoint, { driver }));
      expect(error).toMatchObject({ code: title === "removed" ? "ERR_TRANSFER_OPEN" : "ERR_TRANSFER_FILE_CHANGED", file });
      expect(error.message).toMatch(title === "removed" ? /ENOENT/ : message);
    });

    it("the last of several shards is cut", async () => {
      const folder = writeShards(Array.from({ length: 5 }, (_, index) => ({ [`t${index}`]: { dtype: "U8", shape: [1000] } }) as const));
      const checkpoint = await openCheckpoint(folder);
      const last = join(folder, "model-5.safetensors");
      writeFileSync(last, "gone");
      expect(await errorFrom(loadCheckpoint(checkpoint, { driver }))).toMatchObject({
        code: "ERR_TRANSFER_FILE_CHANGED",
        file: last,
        actualBytes: 4,
      });
    });
  },
);
