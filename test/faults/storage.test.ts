import { createHash } from "node:crypto";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { LoadOptions } from "../../src/loader/options.js";
import { type FaultPlan, faultEnv, faultHits, withoutIoUring } from "../support/faults.js";
import { temporaryFolder } from "../support/folders.js";
import { type ChildOutcome, loadInChild } from "../support/load-in-child.js";
import { copyingDrivers, evict, ioUringRefusal, type Tensors, writeCheckpoint } from "../support/loading.js";
import { byteLengthOf, pattern } from "../support/safetensors.js";

const MIB = 2 ** 20;
const EIO = { code: "ERR_TRANSFER_READ", errno: "EIO" };
const tensors: Tensors = {
  first: { dtype: "U8", shape: [100_001] },
  large: { dtype: "F32", shape: [MIB] },
  ...Object.fromEntries(Array.from({ length: 50 }, (_, index) => [`small.${index}`, { dtype: "U8", shape: [index * 31] }] as const)),
  last: { dtype: "U8", shape: [MIB + 511] },
};
const digests = Object.fromEntries(
  Object.entries(tensors).map(([name, { dtype, shape }]) => [
    name,
    createHash("sha256")
      .update(pattern(name, byteLengthOf(dtype, shape)))
      .digest("hex"),
  ]),
);

/**
 * Loads the checkpoint above under a plan of faults; the second value says how often they struck.
 */
async function load(plan: FaultPlan, options: LoadOptions, { cold = false, under = [] as string[] } = {}) {
  const path = writeCheckpoint(tensors);
  if (cold) evict(path);
  const report = join(temporaryFolder(), "hits");
  const outcome: ChildOutcome = await loadInChild(path, options, { env: faultEnv(plan, report), under });
  return { ...outcome, hits: faultHits(report), path };
}

describe.each(copyingDrivers)("by the driver %s", (driver) => {
  it.each([true, false])("short reads are taken up again (cold: %s)", async (cold) => {
    const outcome = await load({ shortBytes: 4099 }, { driver }, { cold });
    expect(outcome.digests).toEqual(digests);
    expect(outcome.hits.short).toBeGreaterThan(driver === "pread" ? 500 : 0);
  });

  it("reads of a single byte are taken up again", async () => {
    const path = writeCheckpoint({ few: { dtype: "U8", shape: [500], bytes: Buffer.alloc(500, 7) } });
    const hits = join(temporaryFolder(), "hits");
    const outcome = await loadInChild(path, { driver }, { env: faultEnv({ shortBytes: 1 }, hits) });
    expect(outcome.digests).toEqual({ few: createHash("sha256").update(Buffer.alloc(500, 7)).digest("hex") });
    expect(faultHits(hits).short).toBeGreaterThanOrEqual(500);
  });

  it.each([2, 3])("reads that are interrupted, every one of %d, are made again", async (eintrEvery) => {
    const outcome = await load({ eintrEvery, shortBytes: 50_000 }, { driver });
    expect(outcome.digests).toEqual(digests);
    expect(outcome.hits.eintr).toBeGreaterThan(0);
  });

  it("both at once, on a slow disk too", async () => {
    // Few reads of the other drivers pass through libc: header and unaligned ends.
    const shortBytes = driver === "pread" ? 100_003 : 99;
    const outcome = await load({ eintrEvery: 5, shortBytes, stallMs: 1 }, { driver }, { cold: true });
    expect(outcome.digests).toEqual(digests);
    expect(Math.min(outcome.hits.eintr, outcome.hits.short, outcome.hits.stall)).toBeGreaterThan(0);
  });
});

describe("a read that fails", () => {
  // The buffered parts of a warm file pass through libc in every case.
  it.each<[LoadOptions["driver"], FaultPlan["failErrno"]]>([
    ["pread", "EIO"],
    ["pread", "ESTALE"],
    ["auto", "EIO"],
  ])("by the driver %s with %s names file, offset and errno", async (driver, failErrno = "EIO") => {
    const failOffset = 3_000_000;
    const { error, hits, path } = await load({ failOffset, failErrno }, { driver });
    expect(error).toMatchObject({ code: "ERR_TRANSFER_READ", errno: failErrno, file: path });
    const { offset, length } = error as unknown as { offset: number; length: number };
    expect(offset).toBeLessThanOrEqual(failOffset);
    expect(offset + length).toBeGreaterThan(failOffset);
    expect(error?.message).toContain(`${length} bytes at offset ${offset} of ${path}`);
    expect(error?.message).toContain(failErrno);
    expect(hits.fail).toBeGreaterThanOrEqual(1);
  });

  it("behind short reads names the very place", async () => {
    const { error } = await load({ failOffset: 3_000_000, shortBytes: 1000 }, { driver: "pread", threads: 1 });
    expect(error).toMatchObject(EIO);
    expect(error?.offset).toBeGreaterThan(3_000_000 - 8 * MIB);
    expect(Number(error?.offset) + Number(error?.length)).toBeGreaterThan(3_000_000);
  });
});

describe("O_DIRECT refused", () => {
  /**
   * Opening a checkpoint asks once for each device, so that the plan counts what a read through the
   * page cache takes.
   */
  const askedByOpening = 1;

  it("is no matter to pread, which never asks for it", async () => {
    const outcome = await load({ noDirect: true }, { driver: "pread" }, { cold: true });
    expect(outcome.digests).toEqual(digests);
    expect(outcome.hits.nodirect).toBe(askedByOpening);
  });

  it("makes auto read buffered, and the report says why", async () => {
    const outcome = await load({ noDirect: true }, { driver: "auto" }, { cold: true });
    expect(outcome.digests).toEqual(digests);
    expect(outcome.report?.driver).toEqual({ asked: "auto", used: ["buffered"] });
    expect(outcome.report?.shards[0]?.reason).toBe("nothing in the page cache; O_DIRECT refused (EINVAL)");
    expect(outcome.hits.nodirect).toBe(askedByOpening + 1);
  });

  it.skipIf(ioUringRefusal() !== "")("is an error where io_uring was asked for by name", async () => {
    const { error, hits, path } = await load({ noDirect: true }, { driver: "io_uring" });
    expect(error).toMatchObject({ code: "ERR_TRANSFER_DIRECT_REFUSED", errno: "EINVAL", file: path });
    expect(hits.nodirect).toBe(askedByOpening + 1);
  });
});

describe.each(["EPERM", "ENOSYS", "EOPNOTSUPP"] as const)("io_uring refused with %s", (errno) => {
  const under = withoutIoUring(errno);

  it("makes auto read directly by threads, and the report says why", async () => {
    const outcome = await load({}, { driver: "auto" }, { cold: true, under });
    expect(outcome.digests).toEqual(digests);
    expect(outcome.report?.driver).toEqual({ asked: "auto", used: ["buffered", "direct-threads"] });
    expect(outcome.report?.shards[0]?.reason).toBe(`nothing in the page cache; io_uring refused (${errno}): direct reads by threads`);
  });

  it("is an error where io_uring was asked for by name", async () => {
    const { error } = await load({}, { driver: "io_uring" }, { under });
    expect(error).toMatchObject({ code: "ERR_TRANSFER_IO_URING_REFUSED", errno, operation: "io_uring_setup" });
    expect(error?.message).toContain(`(${errno})`);
  });

  it("is no matter to pread", async () => {
    expect((await load({}, { driver: "pread" }, { under })).digests).toEqual(digests);
  });
});

describe("io_uring_enter refused alone", () => {
  const under = withoutIoUring("EPERM", "enter");

  it.skipIf(ioUringRefusal() !== "")("makes auto read directly by threads, and the report says why", async () => {
    const outcome = await load({}, { driver: "auto" }, { cold: true, under });
    expect(outcome.digests).toEqual(digests);
    expect(outcome.report?.driver).toEqual({ asked: "auto", used: ["buffered", "direct-threads"] });
    expect(outcome.report?.shards[0]?.reason).toBe(
      "nothing in the page cache; io_uring refused (io_uring_enter: EPERM): direct reads by threads",
    );
  });

  it.skipIf(ioUringRefusal() !== "")("is an error where io_uring was asked for by name", async () => {
    const { error } = await load({}, { driver: "io_uring" }, { under });
    expect(error).toMatchObject({ code: "ERR_TRANSFER_IO_URING_REFUSED", errno: "EPERM", operation: "io_uring_enter" });
  });
});

describe("under auto without io_uring the direct reads pass through libc", () => {
  const under = withoutIoUring("EPERM");

  it("short ones, off the alignment too, are taken up again", async () => {
    for (const shortBytes of [512 * 10, 70_001]) {
      const outcome = await load({ shortBytes }, { driver: "auto" }, { cold: true, under });
      expect(outcome.digests).toEqual(digests);
      expect(outcome.hits.short).toBeGreaterThan(50);
    }
  });

  it("interrupted ones are made again", async () => {
    const outcome = await load({ eintrEvery: 2 }, { driver: "auto" }, { cold: true, under });
    expect(outcome.digests).toEqual(digests);
    expect(outcome.hits.eintr).toBeGreaterThan(0);
  });

  it("failed ones name the offset", async () => {
    const { error, hits } = await load({ failOffset: 3_000_000 }, { driver: "auto" }, { cold: true, under });
    expect(error).toMatchObject({ ...EIO, operation: "direct read" });
    expect(Number(error?.offset)).toBeLessThanOrEqual(3_000_000);
    expect(hits.fail).toBeGreaterThanOrEqual(1);
  });

  it("where O_DIRECT is refused as well, all is buffered", async () => {
    const outcome = await load({ noDirect: true }, { driver: "auto" }, { cold: true, under });
    expect(outcome.digests).toEqual(digests);
    expect(outcome.report?.driver.used).toEqual(["buffered"]);
  });
});
