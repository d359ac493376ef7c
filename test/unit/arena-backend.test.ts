import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { VmmArena } from "../../src/arena/arena.js";
import { StubBackend } from "../../src/arena/stub-backend.js";
import type { VmmBackend } from "../../src/arena/vmm-backend.js";
import { ArenaError } from "../../src/errors.js";

const G = 2 * 1024 * 1024;
const B = 0x10_0000_0000_0000n;

/** The events of this package during a test. */
let events: Record<string, unknown>[] = [];
const listen = (message: unknown) => events.push(message as Record<string, unknown>);
beforeEach(() => {
  events = [];
  subscribe("modelexpress", listen);
});
afterEach(() => {
  unsubscribe("modelexpress", listen);
});
const failuresTold = () => events.filter(({ event }) => event === "arena.release-failed");

/** A stub whose methods fail as planned. */
class FailingStub extends StubBackend {
  readonly fail = new Set<string>();

  #step(operation: string): void {
    if (this.fail.has(operation)) throw new Error(`planned: ${operation}`);
  }
  override reserve(totalBytes: number): bigint {
    this.#step("reserve");
    return super.reserve(totalBytes);
  }
  override allocate(va: bigint, bytes: number): bigint {
    this.#step("allocate");
    return super.allocate(va, bytes);
  }
  override deallocate(va: bigint, bytes: number, handle: bigint): void {
    super.deallocate(va, bytes, handle);
    this.#step("deallocate");
    this.#step(`deallocate ${handle}`);
  }
  override releaseReserve(base: bigint, totalBytes: number): void {
    super.releaseReserve(base, totalBytes);
    this.#step("releaseReserve");
  }
}

describe("what an arena asks of its backend", () => {
  it("is one reserve, one allocate for each malloc, one deallocate for each, one release", () => {
    const backend = new StubBackend();
    const arena = new VmmArena({ backend });
    const first = arena.malloc(1);
    arena.malloc(G + 1);
    arena.free(first);
    arena.free(first);
    arena.malloc(G);
    arena.close();
    arena.close();
    expect(backend.reserved).toEqual([[B, 2 ** 44]]);
    expect(backend.allocations).toEqual([
      [B, G, 1n],
      [B + BigInt(G), 2 * G, 2n],
      [B + BigInt(3 * G), G, 3n],
    ]);
    expect(backend.deallocations).toEqual([
      [B, G, 1n],
      [B + BigInt(G), 2 * G, 2n],
      [B + BigInt(3 * G), G, 3n],
    ]);
    expect(backend.released).toEqual([[B, 2 ** 44]]);
  });

  it("gives handles back whole", () => {
    const backend = new StubBackend();
    const handles = [0n, 2n ** 64n - 1n, 2n ** 53n + 1n];
    const back: bigint[] = [];
    const arena: VmmArena = new VmmArena({
      backend: {
        allocationGranularity: () => G,
        reserve: (totalBytes) => backend.reserve(totalBytes),
        allocate: () => handles[arena.liveAllocationCount] as bigint,
        deallocate: (_va, _bytes, handle) => {
          back.push(handle);
        },
        releaseReserve: () => {},
      },
    });
    const first = arena.malloc(1);
    arena.malloc(1);
    arena.malloc(1);
    arena.free(first);
    arena.close();
    expect(back).toEqual(handles);
  });

  it("must be there, and whole", () => {
    const arenaOver = (backend: unknown) => () => new VmmArena({ backend: backend as VmmBackend });
    for (const nothing of [undefined, null, "host", 7]) {
      expect(arenaOver(nothing)).toThrow(expect.objectContaining({ code: "ERR_ARENA_BACKEND_REQUIRED", option: "backend" }));
    }
    expect(() => new (VmmArena as unknown as new () => VmmArena)()).toThrow(
      expect.objectContaining({ code: "ERR_ARENA_BACKEND_REQUIRED" }),
    );
    expect(arenaOver({ reserve: () => 1n })).toThrow("lacks allocationGranularity, allocate, deallocate, releaseReserve");
    expect(arenaOver(Object.assign(new StubBackend(), { memory: "disk" }))).toThrow('memory "disk"');
    expect(arenaOver({})).toThrow(ArenaError);
  });

  it.each([0, -4096, 3, 4097, 0.5, Number.NaN, Number.POSITIVE_INFINITY])("is no granularity of %s", (granularity) => {
    const backend = new StubBackend({ granularity });
    expect(() => new VmmArena({ backend })).toThrow(expect.objectContaining({ code: "ERR_ARENA_GRANULARITY" }));
    expect(backend.reserved).toEqual([]);
  });

  it("takes any power of two as granularity", () => {
    for (const granularity of [1, 2 ** 21, 2 ** 30, 2 ** 44, 2 ** 52]) {
      const backend = new StubBackend({ granularity });
      const arena = new VmmArena({ backend, totalBytes: 1 });
      expect(arena.totalBytes).toBe(granularity);
      arena.malloc(1);
      arena.close();
      expect(backend.deallocations).toEqual([[B, granularity, 1n]]);
    }
  });
});

describe("a backend that fails", () => {
  it("in reserve: its error goes up", () => {
    const backend = new FailingStub();
    backend.fail.add("reserve");
    expect(() => new VmmArena({ backend })).toThrow("planned: reserve");
    expect(backend.released).toEqual([]);
  });

  it.each([[2n ** 64n - 4096n], [2n ** 64n], [-1n], [4096 as unknown as bigint]])(
    "with a reserve at %s: released again, the fault goes up",
    (base) => {
      const backend = new FailingStub();
      backend.reserve = () => base;
      expect(() => new VmmArena({ backend, totalBytes: G })).toThrow(ArenaError);
      expect(backend.released).toEqual([[base, G]]);
      expect(failuresTold()).toEqual([]);
    },
  );

  it("with a bad reserve and in its release: the first error goes up, the other is told", () => {
    const backend = new FailingStub();
    backend.reserve = () => 2n ** 64n;
    backend.fail.add("releaseReserve");
    expect(() => new VmmArena({ backend })).toThrow(expect.objectContaining({ code: "ERR_ARENA_BACKEND_RESULT", operation: "reserve" }));
    expect(failuresTold()).toEqual([
      expect.objectContaining({ operation: "releaseReserve", address: "0x10000000000000000", message: "planned: releaseReserve" }),
    ]);
  });

  it("in allocate: its very error goes up, and only that piece of address space is lost", () => {
    const backend = new FailingStub();
    using arena = new VmmArena({ backend });
    const planned = new TypeError("planned");
    const { allocate } = backend;
    backend.allocate = () => {
      throw planned;
    };
    expect(() => arena.malloc(1)).toThrow(planned);
    expect([arena.usedBytes, arena.mappedBytes, arena.liveAllocationCount]).toEqual([G, 0, 0]);
    backend.allocate = allocate;
    expect(arena.malloc(1)).toBe(B + BigInt(G));
  });

  it.each([[undefined], [5], [-1n], [2n ** 64n], ["1"]])("with %s as a handle: the call fails, nothing is alive", (handle) => {
    const backend = new StubBackend();
    using arena = new VmmArena({ backend });
    backend.allocate = () => handle as bigint;
    expect(() => arena.malloc(1)).toThrow(expect.objectContaining({ code: "ERR_ARENA_BACKEND_RESULT", operation: "allocate" }));
    expect([arena.usedBytes, arena.mappedBytes, arena.liveAllocationCount]).toEqual([G, 0, 0]);
  });

  it("in deallocate during free: told, not thrown, and the allocation is gone", () => {
    const backend = new FailingStub();
    const arena = new VmmArena({ backend });
    const address = arena.malloc(1);
    backend.fail.add("deallocate");
    arena.free(address);
    expect(failuresTold()).toEqual([
      expect.objectContaining({
        operation: "free",
        address: "0x10000000000000",
        bytes: G,
        message: "planned: deallocate",
        error: expect.any(Error),
      }),
    ]);
    expect([arena.mappedBytes, arena.liveAllocationCount]).toEqual([0, 0]);
    arena.free(address);
    arena.close();
    expect(backend.deallocations).toHaveLength(1);
  });

  it("in each call of close: everything is tried once, the first error is thrown, all are told", () => {
    const backend = new FailingStub();
    const arena = new VmmArena({ backend });
    for (let at = 0; at < 3; at++) arena.malloc(1);
    for (const operation of ["deallocate 1", "deallocate 3", "releaseReserve"]) backend.fail.add(operation);
    expect(() => arena.close()).toThrow("planned: deallocate 1");
    expect(backend.deallocations.map(([, , handle]) => handle)).toEqual([1n, 2n, 3n]);
    expect(backend.released).toHaveLength(1);
    expect(failuresTold().map(({ message, address, bytes }) => [message, address, bytes])).toEqual([
      ["planned: deallocate 1", "0x10000000000000", G],
      ["planned: deallocate 3", "0x10000000400000", G],
      ["planned: releaseReserve", "0x10000000000000", arena.totalBytes],
    ]);
    expect(events.filter(({ event }) => event === "arena.closed")).toEqual([
      { event: "arena.closed", address: "0x10000000000000", totalBytes: arena.totalBytes, usedBytes: 3 * G, device: arena.device },
    ]);
    arena.close();
    expect([arena.state, arena.liveAllocationCount]).toEqual(["closed", 0]);
    expect(backend.released).toHaveLength(1);
  });

  it("in the release of the reserve alone: thrown", () => {
    const backend = new FailingStub();
    const arena = new VmmArena({ backend });
    backend.fail.add("releaseReserve");
    expect(() => arena.close()).toThrow("planned: releaseReserve");
    expect(arena.closed).toBe(true);
  });
});

describe("a backend that calls the arena that is calling it", () => {
  const calls: Record<string, (arena: VmmArena) => void> = {
    malloc: (arena) => arena.malloc(1),
    free: (arena) => arena.free(B),
    "free of an unknown address": (arena) => arena.free(7n),
    close: (arena) => arena.close(),
  };
  describe.each(Object.keys(calls))("%s", (name) => {
    const call = calls[name] as (arena: VmmArena) => void;

    it.each(["allocate", "deallocate", "releaseReserve"] as const)("is refused from %s, and the arena goes on", (method) => {
      const backend = new StubBackend();
      const arena = new VmmArena({ backend });
      const refused: unknown[] = [];
      const original = backend[method].bind(backend) as (...values: unknown[]) => bigint;
      Object.assign(backend, {
        [method]: (...values: unknown[]) => {
          expect(arena.usedBytes).toBeGreaterThan(0);
          try {
            call(arena);
          } catch (error) {
            refused.push(error);
          }
          return original(...values);
        },
      });
      arena.free(arena.malloc(1));
      arena.malloc(1);
      arena.close();
      expect(refused.length).toBeGreaterThan(0);
      for (const error of refused) expect(error).toMatchObject({ code: "ERR_ARENA_REENTRANT" });
      expect([backend.allocations.length, backend.deallocations.length, backend.released.length]).toEqual([2, 2, 1]);
    });
  });

  it("leaves its allocation undone when it does not catch that", () => {
    const backend = new StubBackend();
    using arena = new VmmArena({ backend });
    const { allocate } = backend;
    backend.allocate = () => arena.malloc(1);
    expect(() => arena.malloc(1)).toThrow(expect.objectContaining({ code: "ERR_ARENA_REENTRANT" }));
    backend.allocate = allocate;
    expect(arena.malloc(1)).toBe(B + BigInt(G));
    expect(arena.liveAllocationCount).toBe(1);
  });

  it("may call another arena", () => {
    const inner = new VmmArena({ backend: new StubBackend() });
    const backend = new StubBackend();
    backend.allocate = (_va, bytes) => inner.malloc(bytes);
    backend.deallocate = (_va, _bytes, handle) => inner.free(handle);
    const outer = new VmmArena({ backend });
    outer.malloc(G);
    expect(inner.liveAllocationCount).toBe(1);
    outer.close();
    expect(inner.liveAllocationCount).toBe(0);
    inner.close();
  });
});

it("an alignment that the base does not have is refused", () => {
  const backend = new StubBackend();
  backend.reserve = () => B + 256n;
  using arena = new VmmArena({ backend });
  expect(arena.malloc(1, 256)).toBe(B + 256n);
  expect(() => arena.malloc(1, 512)).toThrow(expect.objectContaining({ code: "ERR_ARENA_ALIGNMENT", alignment: 512 }));
});

it("only a bigint can be freed", () => {
  using arena = new VmmArena({ backend: new StubBackend() });
  expect(() => arena.free(4096 as unknown as bigint)).toThrow(expect.objectContaining({ code: "ERR_ARENA_ADDRESS" }));
});

it("the reserve is told as an event", () => {
  new VmmArena({ backend: new StubBackend(), totalBytes: 3 * G }).close();
  expect(events).toContainEqual({ event: "arena.reserve", address: "0x10000000000000", totalBytes: 3 * G, granularity: G, device: "host" });
});
