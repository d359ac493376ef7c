import { afterEach, describe, expect, it } from "vitest";
import { VmmArena } from "../../src/arena/arena.js";
import { givenBack } from "../../src/arena/giving-back.js";
import type { VmmBackend } from "../../src/arena/vmm-backend.js";

/**
 * What every arena does, whatever its backend. The backend must grant at least 16 TiB of address
 * space and a few granules of memory.
 */
export function arenaContract(name: string, makeBackend: () => VmmBackend): void {
  describe(`arena over ${name}`, () => {
    /** An arena of `granules` granules, with its granularity `g`. */
    function open(granules: number) {
      const backend = makeBackend();
      const g = backend.allocationGranularity();
      return { arena: new VmmArena({ backend, totalBytes: granules * g }), g };
    }

    // A device's memory goes back on other threads. What one test closed is not to be counted with
    // the memory of the next.
    afterEach(givenBack);

    const counters = (arena: VmmArena) => [arena.usedBytes, arena.mappedBytes, arena.liveAllocationCount, arena.state];

    it("reserves 16 TiB by default, and allocates nothing yet", () => {
      const backend = makeBackend();
      using arena = new VmmArena({ backend });
      expect(arena.totalBytes).toBe(17_592_186_044_416);
      expect(arena.granularity).toBe(backend.allocationGranularity());
      expect(arena.memory).toBe(backend.memory ?? "none");
      expect(arena.device).toBe(backend.device ?? "host");
      expect(arena.registeredRange()).toEqual({ base: arena.base, usedBytes: 0 });
      expect(counters(arena)).toEqual([0, 0, 0, "open"]);
      expect(arena.closed).toBe(false);
    });

    it("rounds the reserve up to the granularity", () => {
      const backend = makeBackend();
      const g = backend.allocationGranularity();
      using arena = new VmmArena({ backend, totalBytes: g + 1 });
      expect(arena.totalBytes).toBe(2 * g);
    });

    it.each([0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 53])("refuses a reserve of %s bytes", (totalBytes) => {
      expect(() => new VmmArena({ backend: makeBackend(), totalBytes })).toThrow(expect.objectContaining({ code: "ERR_ARENA_SIZE" }));
    });

    it("hands out ascending addresses from the base on, rounded up to the granularity", () => {
      const { arena, g } = open(8);
      expect(arena.malloc(1)).toBe(arena.base);
      expect(arena.malloc(g)).toBe(arena.base + BigInt(g));
      expect(arena.malloc(g + 1)).toBe(arena.base + BigInt(2 * g));
      expect(counters(arena)).toEqual([4 * g, 4 * g, 3, "open"]);
      arena.close();
    });

    it("never hands an address out again, and never shrinks what is registered", () => {
      const { arena, g } = open(8);
      const first = arena.malloc(g);
      const second = arena.malloc(g);
      arena.free(first);
      expect(counters(arena)).toEqual([2 * g, g, 1, "open"]);
      arena.free(second);
      expect(counters(arena)).toEqual([2 * g, 0, 0, "open"]);
      expect(arena.malloc(g)).toBe(arena.base + BigInt(2 * g));
      expect(arena.registeredRange()).toEqual({ base: arena.base, usedBytes: 3 * g });
      arena.close();
    });

    it.each([0, -1, 0.5, Number.NaN, 2 ** 53])("refuses to allocate %s bytes", (bytes) => {
      const { arena } = open(1);
      expect(() => arena.malloc(bytes)).toThrow(expect.objectContaining({ code: "ERR_ARENA_SIZE" }));
      expect(counters(arena)).toEqual([0, 0, 0, "open"]);
      arena.close();
    });

    it("takes alignments up to the granularity, and refuses others before it allocates", () => {
      const { arena, g } = open(4);
      expect(arena.malloc(1, 1) % BigInt(g)).toBe(0n);
      expect(arena.malloc(1, 256) % 256n).toBe(0n);
      expect(arena.malloc(1, g) % BigInt(g)).toBe(0n);
      for (const alignment of [2 * g, 3, 0, -2, 0.5]) {
        expect(() => arena.malloc(1, alignment)).toThrow(expect.objectContaining({ code: "ERR_ARENA_ALIGNMENT" }));
      }
      expect(counters(arena)).toEqual([3 * g, 3 * g, 3, "open"]);
      arena.close();
    });

    it("lets the exact last fit succeed and nothing beyond", () => {
      const { arena, g } = open(3);
      arena.malloc(g);
      expect(() => arena.malloc(2 * g + 1)).toThrow(
        expect.objectContaining({ code: "ERR_ARENA_EXHAUSTED", totalBytes: 3 * g, usedBytes: g }),
      );
      expect(() => arena.malloc(Number.MAX_SAFE_INTEGER)).toThrow(expect.objectContaining({ code: "ERR_ARENA_EXHAUSTED" }));
      expect(counters(arena)).toEqual([g, g, 1, "open"]);
      expect(arena.malloc(2 * g)).toBe(arena.base + BigInt(g));
      expect(() => arena.malloc(1)).toThrow(expect.objectContaining({ code: "ERR_ARENA_EXHAUSTED" }));
      arena.close();
    });

    it("does nothing when what is freed is unknown, inside an allocation, or freed before", () => {
      const { arena, g } = open(2);
      const address = arena.malloc(g);
      for (const unknown of [0n, address + 1n, address + BigInt(g), -1n, 2n ** 64n + address]) arena.free(unknown);
      expect(counters(arena)).toEqual([g, g, 1, "open"]);
      arena.free(address);
      arena.free(address);
      expect(counters(arena)).toEqual([g, 0, 0, "open"]);
      arena.close();
    });

    it("can be read after close; closing again does nothing, and frees are no-ops", () => {
      const { arena, g } = open(4);
      const address = arena.malloc(g);
      arena.free(arena.malloc(g));
      arena.close();
      arena.close();
      arena.free(address);
      expect(counters(arena)).toEqual([2 * g, 0, 0, "closed"]);
      expect(arena.closed).toBe(true);
      expect([arena.totalBytes, arena.granularity]).toEqual([4 * g, g]);
      expect(arena.registeredRange()).toEqual({ base: address, usedBytes: 2 * g });
      expect(() => arena.malloc(1)).toThrow(expect.objectContaining({ code: "ERR_ARENA_CLOSED" }));
    });

    it("is disposable", () => {
      const { arena } = open(1);
      {
        using disposed = arena;
        disposed.malloc(1);
      }
      expect(arena.closed).toBe(true);
    });

    it("is independent of other arenas over the same backend", () => {
      const backend = makeBackend();
      const g = backend.allocationGranularity();
      const one = new VmmArena({ backend, totalBytes: 2 * g });
      const other = new VmmArena({ backend, totalBytes: 2 * g });
      const [low, high] = one.base < other.base ? [one, other] : [other, one];
      expect(low.base + BigInt(2 * g)).toBeLessThanOrEqual(high.base);
      one.malloc(2 * g);
      expect(counters(other)).toEqual([0, 0, 0, "open"]);
      one.close();
      expect(other.malloc(g)).toBe(other.base);
      other.close();
    });

    it("keeps its counters over many allocations freed in any order", () => {
      const { arena, g } = open(600);
      const addresses = Array.from({ length: 300 }, () => arena.malloc(1));
      for (let at = 0; at < 300; at += 2) arena.free(addresses[at] as bigint);
      expect(counters(arena)).toEqual([300 * g, 150 * g, 150, "open"]);
      for (let at = 299; at > 0; at -= 2) arena.free(addresses[at] as bigint);
      expect(counters(arena)).toEqual([300 * g, 0, 0, "open"]);
      arena.close();
    });
  });
}
