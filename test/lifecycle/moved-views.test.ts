import { closeSync, openSync, readSync } from "node:fs";
import { describe, expect, it, vi } from "vitest";
import { VmmArena } from "../../src/arena/arena.js";
import { hostBackend } from "../../src/arena/host-backend.js";
import { HostMemoryBackend } from "../support/host-memory-backend.js";
import { mappingsOf } from "../support/mappings.js";
import { moveBytes } from "../support/moved-bytes.js";
import { collectGarbage } from "../support/process-counters.js";

const MIB = 2 ** 20;

function readable(address: bigint): boolean {
  return mappingsOf(address, 1).some(({ flags }) => flags.includes("rd"));
}

/** Pages of a range that memory is behind, where pages are small. */
function residentPages(address: bigint, bytes: number): number {
  const entries = Buffer.alloc((bytes / 4096) * 8);
  const file = openSync("/proc/self/pagemap", "r");
  readSync(file, entries, 0, entries.length, Number(address / 4096n) * 8);
  closeSync(file);
  let count = 0;
  for (let at = 0; at < entries.length; at += 8) if (entries.readBigUInt64LE(at) >> 63n) count++;
  return count;
}

/**
 * An arena with one allocation, of which the bytes [1 MiB, 1 MiB + 10,000) were moved out of their
 * view.
 */
async function movedOut(backend = hostBackend()) {
  const arena = new VmmArena({ backend, totalBytes: 4 * MIB });
  const address = arena.malloc(2 * MIB);
  const whole = new Uint8Array(arena.view(address, 2 * MIB)).fill(7);
  const moved = await moveBytes(new Uint8Array(arena.view(address + BigInt(MIB), 10_000)));
  return { arena, address, whole, moved };
}

describe("memory that was moved out of a view", () => {
  it.each(["close", "free"] as const)("outlives %s until it is collected, and nothing else of its allocation does", async (operation) => {
    const { arena, address } = await kept(operation);
    await vi.waitFor(async () => {
      await collectGarbage();
      expect([readable(address), arena.liveAllocationCount]).toEqual([false, 0]);
    });
    arena.close();
  });

  it("keeps an arena over a backend written in JavaScript open, and everything in it as it is", async () => {
    const backend = new HostMemoryBackend();
    const { arena, address } = await busy(backend);
    await vi.waitFor(async () => {
      await collectGarbage();
      arena.free(address);
    });
    expect([...backend.live]).toEqual([]);
    arena.close();
  });

  it("goes with its view where that was not moved", async () => {
    const arena = new VmmArena({ backend: hostBackend(), totalBytes: 4 * MIB });
    const address = arena.malloc(2 * MIB);
    const view = new Uint8Array(arena.view(address, 2 * MIB)).fill(7);
    arena.close();
    expect([view.length, readable(address)]).toEqual([0, false]);
  });

  it.each([hostBackend, () => new HostMemoryBackend()])("goes at once where nobody uses its view any more, in the same turn", (backend) => {
    const arena = new VmmArena({ backend: backend(), totalBytes: 4 * MIB });
    const address = arena.malloc(2 * MIB);
    const fill = () => new Uint8Array(arena.view(address, 2 * MIB)).fill(7).length;
    expect(fill()).toBe(2 * MIB);
    globalThis.gc?.();
    arena.close();
    expect(arena.liveAllocationCount).toBe(0);
  });
});

async function kept(operation: "close" | "free") {
  const { arena, address, whole, moved } = await movedOut();
  if (operation === "close") arena.close();
  else arena.free(address);
  expect([whole.length, moved.length, moved.every((byte) => byte === 7)]).toEqual([0, 10_000, true]);
  expect([readable(address), arena.liveAllocationCount]).toEqual([true, 1]);
  expect(residentPages(address, 2 * MIB)).toBeLessThanOrEqual(4);
  return { arena, address };
}

async function busy(backend: HostMemoryBackend) {
  const { arena, address, whole, moved } = await movedOut(backend);
  const refused = expect.objectContaining({ code: "ERR_ARENA_BUSY" });
  expect(() => arena.close()).toThrow(refused);
  expect(() => arena.free(address)).toThrow(refused);
  expect([arena.state, whole.length, moved[0], backend.live.size]).toEqual(["open", 2 * MIB, 7, 1]);
  return { arena, address };
}
