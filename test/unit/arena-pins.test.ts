import { statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setImmediate } from "node:timers/promises";
import { expect, it } from "vitest";
import { VmmArena } from "../../src/arena/arena.js";
import { hostBackend } from "../../src/arena/host-backend.js";
import { addon } from "../../src/native/load.js";
import { temporaryFolder } from "../support/folders.js";
import { planFaults } from "../support/loading.js";

/**
 * Reads 4096 bytes of 7 to `address`, natively, and takes `stallMs` for it. Resolves when nothing
 * is in flight any more.
 */
function slowRead(arena: VmmArena, address: bigint, stallMs: number): Promise<void> {
  const file = join(temporaryFolder(), "bytes");
  writeFileSync(file, Buffer.alloc(4096, 7));
  planFaults({ nth: 0, stallMs });
  const { dev, ino, mtimeNs } = statSync(file, { bigint: true });
  return new Promise((resolve, reject) => {
    addon().startTransfer(
      arena.native,
      {
        paths: [file],
        size: Float64Array.of(4096),
        identity: BigUint64Array.of(dev, ino, mtimeNs, 0n, 0n, 0n),
        dioOffsetAlign: Uint32Array.of(0),
        dioMemAlign: Uint32Array.of(0),
      },
      { file: Uint32Array.of(0), offset: Float64Array.of(0), length: Float64Array.of(4096), address: BigUint64Array.of(address) },
      {
        driver: "pread",
        threads: 1,
        bufferedBlockBytes: 1 << 20,
        directBlockBytes: 1 << 20,
        queueDepth: 1,
      },
      (failure) => failure === null || reject(new Error(failure)),
      resolve,
    );
  });
}

it("what a transfer uses cannot be freed or closed, and stays as it is", async () => {
  const arena = new VmmArena({ backend: hostBackend(), totalBytes: 8 << 20 });
  const [address, other] = [arena.malloc(4096), arena.malloc(4096)];
  const view = new Uint8Array(arena.view(address, 4096));
  const settled = slowRead(arena, address, 300);
  expect(() => arena.free(address)).toThrow(expect.objectContaining({ code: "ERR_ARENA_BUSY" }));
  expect(() => arena.close()).toThrow(expect.objectContaining({ code: "ERR_ARENA_BUSY" }));
  expect([arena.state, arena.liveAllocationCount, view.byteLength]).toEqual(["open", 2, 4096]);
  arena.free(other);
  expect(arena.liveAllocationCount).toBe(1);
  await settled;
  expect(view.every((byte) => byte === 7)).toBe(true);
  arena.free(address);
  expect([arena.liveAllocationCount, view.byteLength]).toEqual([0, 0]);
  arena.close();
});

it("memory outlives an arena that became unreachable while a transfer writes to it", async () => {
  let settled: Promise<void> = Promise.resolve();
  const begin = () => {
    const arena = new VmmArena({ backend: hostBackend(), totalBytes: 8 << 20 });
    settled = slowRead(arena, arena.malloc(4096), 200);
  };
  begin();
  for (let round = 0; round < 5; round++) {
    globalThis.gc?.();
    await setImmediate();
  }
  await settled;
});

it("an unreachable arena over a backend in JavaScript is closed after its transfer, not before", async () => {
  const inner = hostBackend();
  let released = false;
  let settled = false;
  const begin = () => {
    const arena = new VmmArena({
      totalBytes: 8 << 20,
      backend: {
        memory: "host",
        allocationGranularity: () => inner.allocationGranularity(),
        reserve: (totalBytes) => inner.reserve(totalBytes),
        allocate: (va, bytes) => inner.allocate(va, bytes),
        deallocate: (va, bytes, handle) => inner.deallocate(va, bytes, handle),
        releaseReserve: (base, totalBytes) => {
          expect(settled).toBe(true);
          released = true;
          inner.releaseReserve(base, totalBytes);
        },
      },
    });
    return slowRead(arena, arena.malloc(4096), 200).then(() => {
      settled = true;
    });
  };
  await begin();
  const deadline = Date.now() + 10_000;
  while (!released && Date.now() < deadline) {
    globalThis.gc?.();
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  expect(released).toBe(true);
});
