import { randomFillSync } from "node:crypto";
import { rmSync, statSync, truncateSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { VmmArena } from "../../src/arena/arena.js";
import { cudaBackend } from "../../src/arena/cuda-backend.js";
import { givenBack } from "../../src/arena/giving-back.js";
import { hostBackend } from "../../src/arena/host-backend.js";
import type { VmmBackend } from "../../src/arena/vmm-backend.js";
import type { TransferFiles, TransferPieces } from "../../src/native/addon.js";
import type { BatchSummary, TransferBatch, TransferDriver } from "../../src/transfer/driver.js";
import { preadDriver } from "../../src/transfer/reading-driver.js";
import { stagedDriver } from "../../src/transfer/staged/driver.js";
import { standInCuda } from "../support/cuda.js";
import { type OpenThing, readLedger } from "../support/fakes.js";
import { makeFolder, temporaryFolder } from "../support/folders.js";
import { errorFrom, evict } from "../support/loading.js";

const folder = makeFolder();
const ledger = join(folder, "ledger");
const library = standInCuda({ ledger });
const MIB = 2 ** 20;

afterAll(() => rmSync(folder, { recursive: true, force: true }));

function writeFile(bytes: number): string {
  const file = join(temporaryFolder(), "shard");
  writeFileSync(file, randomFillSync(Buffer.allocUnsafe(bytes)));
  return file;
}

function filesOf(paths: readonly string[]): TransferFiles {
  const stats = paths.map((path) => statSync(path, { bigint: true }));
  return {
    paths: [...paths],
    size: Float64Array.from(stats, ({ size }) => Number(size)),
    identity: BigUint64Array.from(stats.flatMap(({ dev, ino, mtimeNs }) => [dev, ino, mtimeNs, 0n, 0n, 0n])),
    dioOffsetAlign: new Uint32Array(paths.length).fill(4096),
    dioMemAlign: new Uint32Array(paths.length).fill(4096),
  };
}

/** `[file, offset, length, address from the allocation's start]`, sorted by file and offset. */
type Row = readonly [file: number, offset: number, length: number, at: number];

function piecesOf(rows: readonly Row[], base: bigint): TransferPieces {
  return {
    file: Uint32Array.from(rows, ([file]) => file),
    offset: Float64Array.from(rows, ([, offset]) => offset),
    length: Float64Array.from(rows, ([, , length]) => length),
    address: BigUint64Array.from(rows, ([, , , at]) => base + BigInt(at)),
  };
}

async function transfer(driver: TransferDriver, backend: VmmBackend, paths: readonly string[], rows: readonly Row[]) {
  using arena = new VmmArena({ backend, totalBytes: 256 * MIB });
  const end = Math.max(1, ...rows.map(([, , length, at]) => at + length));
  const base = arena.malloc(end);
  const batch: TransferBatch = { arena, files: filesOf(paths), pieces: piecesOf(rows, base), threads: 2, maxChunkBytes: 16 * MIB };
  const moving = driver.submit(batch);
  const summary: BatchSummary = await moving.done;
  await moving.settled;
  const wanted = rows.reduce((sum, [, , length]) => sum + length, 0);
  expect(moving.progressBytes()).toBe(wanted);
  const parts: Buffer[] = [];
  for (const [, , length, at] of rows) {
    const address = base + BigInt(at);
    if (length === 0) parts.push(Buffer.alloc(0));
    else if (arena.memory === "host") parts.push(Buffer.from(new Uint8Array(arena.view(address, length))));
    else parts.push(Buffer.from(await arena.native.copyToHost(address, length)));
  }
  return { summary, parts };
}

async function expectSame(paths: readonly string[], rows: readonly Row[], cold = false): Promise<BatchSummary> {
  const expected = await transfer(preadDriver, hostBackend(), paths, rows);
  if (cold) evict(...paths);
  const found = await transfer(stagedDriver, cudaBackend({ device: 0, library }), paths, rows);
  for (const [row, part] of found.parts.entries()) {
    if (!part.equals(expected.parts[row] ?? Buffer.alloc(0))) throw new Error(`the bytes of piece ${row} differ`);
  }
  const total = (summary: BatchSummary, file: number) => (summary.bufferedBytes[file] ?? 0) + (summary.directBytes[file] ?? 0);
  for (const file of paths.keys()) {
    const wanted = rows.reduce((sum, row) => (row[0] === file ? sum + row[2] : sum), 0);
    expect([file, total(found.summary, file)]).toEqual([file, wanted]);
    expect([file, found.summary.ways?.[file]]).toEqual([file, wanted > 0 ? "staged" : undefined]);
  }
  return found.summary;
}

/**
 * What a batch leaves open, once closes under way have ended: nothing but contexts of backends that
 * are still reachable.
 */
async function left(): Promise<OpenThing[]> {
  await givenBack();
  return readLedger(ledger).open.filter(({ kind }) => kind !== "context");
}

describe.each([
  ["warm", false],
  ["cold", true],
])("staged brings the same bytes as pread, files %s", (_, cold) => {
  it("many small tensors, some of them not wanted, at addresses of their own", async () => {
    const rows: Row[] = [];
    let [offset, at] = [17, 0];
    for (let tensor = 0; tensor < 9000; tensor++) {
      const length = 1 + ((tensor * 7919) % 900);
      if (tensor % 5 !== 0) rows.push([0, offset, length, at]);
      offset += length;
      at = Math.ceil((at + length) / 256) * 256;
    }
    await expectSame([writeFile(offset)], rows, cold);
    expect(await left()).toEqual([]);
  });

  it("a tensor that is longer than any slot, between unaligned ones", async () => {
    const [before, large, after] = [1_234_567, 21 * MIB + 5, 3_000_001];
    const rows: Row[] = [
      [0, 3, before, 40],
      [0, 3 + before, large, 4 * MIB],
      [0, 3 + before + large, after, 40 * MIB + 1],
    ];
    const summary = await expectSame([writeFile(30 * MIB)], rows, cold);
    if (cold) expect(summary.directBytes[0]).toBeGreaterThan(20 * MIB);
    expect(await left()).toEqual([]);
  });

  it("several files, one of them with nothing wanted, in memory that descends", async () => {
    const paths = [5 * MIB, 4096, 100, 9 * MIB + 11].map(writeFile);
    const rows: Row[] = [
      [0, 0, 5 * MIB, 30 * MIB],
      [2, 1, 99, 29 * MIB],
      [3, 4 * MIB + 1, 5 * MIB, 8 * MIB + 3],
      [3, 9 * MIB + 1, 10, 0],
    ];
    await expectSame(paths, rows, cold);
    expect(await left()).toEqual([]);
  });
});

describe("staged", () => {
  it("takes no device and no memory for a batch without bytes", async () => {
    const before = readLedger(ledger).counts.cuStreamCreate;
    await expectSame([writeFile(10)], []);
    await expectSame([writeFile(10)], [[0, 4, 0, 0]]);
    expect(readLedger(ledger).counts.cuStreamCreate).toBe(before);
  });

  it("pins four slots of 64 MiB at most, and less for less", async () => {
    const pinned = () => {
      const { events } = readLedger(ledger);
      return events.filter(({ kind, what }) => kind === "host-registration" && what === "opened").map(({ bytes }) => bytes);
    };
    const before = pinned().length;
    await expectSame([writeFile(100)], [[0, 0, 100, 0]]);
    await expectSame([writeFile(40 * MIB)], [[0, 0, 40 * MIB, 0]]);
    expect(pinned().slice(before)).toEqual([4 * MIB, ...Array<number>(4).fill(10 * MIB)]);
  });

  it("reads files again for each window only as the plan knows them", async () => {
    const path = writeFile(20 * MIB);
    using arena = new VmmArena({ backend: cudaBackend({ device: 0, library }), totalBytes: 64 * MIB });
    const base = arena.malloc(20 * MIB);
    const files = filesOf([path]);
    const batch: TransferBatch = { arena, files, pieces: piecesOf([[0, 0, 20 * MIB, 0]], base), threads: 2, maxChunkBytes: MIB };
    truncateSync(path, 19 * MIB);
    const shorter = stagedDriver.submit(batch);
    expect((await errorFrom(shorter.done)).code).toBe("ERR_TRANSFER_FILE_CHANGED");
    await shorter.settled;
    truncateSync(path, 20 * MIB);
    utimesSync(path, 1, 1);
    const older = stagedDriver.submit(batch);
    expect((await errorFrom(older.done)).code).toBe("ERR_TRANSFER_FILE_CHANGED");
    await older.settled;
    expect((await left()).filter(({ kind }) => !["reservation", "handle", "mapping"].includes(kind))).toEqual([]);
  });

  it("refuses memory that is not CUDA's, addresses outside of an allocation, and a closed arena, and leaves nothing", async () => {
    const [path] = [writeFile(4096)];
    const attempt = (arena: VmmArena, base: bigint) =>
      errorFrom(() =>
        stagedDriver.submit({ arena, files: filesOf([path]), pieces: piecesOf([[0, 0, 4096, 0]], base), threads: 1, maxChunkBytes: MIB }),
      );
    using host = new VmmArena({ backend: hostBackend(), totalBytes: MIB });
    expect((await attempt(host, host.malloc(4096))).code).toBe("ERR_ARENA_NOT_LOADABLE");
    const device = new VmmArena({ backend: cudaBackend({ device: 0, library }), totalBytes: MIB });
    const base = device.malloc(4096);
    expect((await attempt(device, base + 2n ** 30n)).code).toBe("ERR_ARENA_ADDRESS");
    device.close();
    expect((await attempt(device, base)).code).toBe("ERR_ARENA_CLOSED");
    expect(await left()).toEqual([]);
  });

  it("holds the memory while it moves, and lets it go at the end", async () => {
    const path = writeFile(8 * MIB);
    const arena = new VmmArena({ backend: cudaBackend({ device: 0, library }), totalBytes: 64 * MIB });
    const base = arena.malloc(8 * MIB);
    const pieces = piecesOf([[0, 0, 8 * MIB, 0]], base);
    const moving = stagedDriver.submit({ arena, files: filesOf([path]), pieces, threads: 2, maxChunkBytes: MIB });
    expect(() => arena.free(base)).toThrow(expect.objectContaining({ code: "ERR_ARENA_BUSY" }));
    moving.abort();
    expect((await errorFrom(moving.done)).code).toBe("ERR_TRANSFER_ABORTED");
    await moving.settled;
    arena.free(base);
    arena.close();
    expect(await left()).toEqual([]);
  });
});
