import { constants } from "node:buffer";
import { setImmediate } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { VmmArena } from "../../src/arena/arena.js";
import { hostBackend } from "../../src/arena/host-backend.js";
import { StubBackend } from "../../src/arena/stub-backend.js";
import type { VmmBackend } from "../../src/arena/vmm-backend.js";

const MiB = 1024 * 1024;

/** Collects garbage, and lets finalizers run, until `done` says so. */
async function collectUntil(done: () => boolean): Promise<void> {
  for (let round = 0; round < 100 && !done(); round++) {
    globalThis.gc?.();
    await setImmediate();
  }
}

/** A host backend that tells when its reserve was released, and that arenas call by its methods. */
class ToldHostBackend implements VmmBackend {
  readonly memory = "host";
  readonly #inner = hostBackend();
  released = 0;

  allocationGranularity(): number {
    return this.#inner.allocationGranularity();
  }
  reserve(totalBytes: number): bigint {
    return this.#inner.reserve(totalBytes);
  }
  allocate(va: bigint, bytes: number): bigint {
    return this.#inner.allocate(va, bytes);
  }
  deallocate(va: bigint, bytes: number, handle: bigint): void {
    this.#inner.deallocate(va, bytes, handle);
  }
  releaseReserve(base: bigint, totalBytes: number): void {
    this.#inner.releaseReserve(base, totalBytes);
    this.released++;
  }
}

describe.each([
  ["host backend", hostBackend],
  ["host backend behind another", () => new ToldHostBackend()],
] as const)("views over the %s", (_name, makeBackend) => {
  it("show the same zeroed memory, without a copy", () => {
    using arena = new VmmArena({ backend: makeBackend(), totalBytes: 16 * MiB });
    const address = arena.malloc(3 * MiB);
    const whole = new Uint8Array(arena.view(address, 3 * MiB));
    expect(whole.every((byte) => byte === 0)).toBe(true);
    const part = new Uint32Array(arena.view(address + 4096n, 8));
    part.set([0x01020304, 0xfffefdfc]);
    expect([...whole.subarray(4096, 4104)]).toEqual([4, 3, 2, 1, 0xfc, 0xfd, 0xfe, 0xff]);
  });

  it("end with their allocation, and only with theirs", () => {
    using arena = new VmmArena({ backend: makeBackend(), totalBytes: 16 * MiB });
    const [first, second] = [arena.malloc(2 * MiB), arena.malloc(2 * MiB)];
    const views = [arena.view(first, 16), arena.view(first + 100n, 16), arena.view(second, 16)];
    arena.free(first + 1n);
    expect(views.map((view) => view.byteLength)).toEqual([16, 16, 16]);
    arena.free(first);
    expect(views.map((view) => view.byteLength)).toEqual([0, 0, 16]);
    arena.close();
    expect(views.map((view) => view.byteLength)).toEqual([0, 0, 0]);
    arena.close();
  });

  it("are refused outside of one live allocation, and after close", () => {
    const arena = new VmmArena({ backend: makeBackend(), totalBytes: 16 * MiB });
    const address = arena.malloc(2 * MiB);
    const freed = arena.malloc(2 * MiB);
    arena.free(freed);
    for (const [at, length] of [
      [address, 2 * MiB + 1],
      [address - 1n, 1],
      [address + BigInt(2 * MiB) - 1n, 2],
      [freed, 1],
      [0n, 1],
    ] as const) {
      expect(() => arena.view(at, length)).toThrow(expect.objectContaining({ code: "ERR_ARENA_ADDRESS" }));
    }
    arena.close();
    expect(() => arena.view(address, 1)).toThrow(expect.objectContaining({ code: "ERR_ARENA_CLOSED" }));
  });

  it("of no bytes are empty buffers", () => {
    using arena = new VmmArena({ backend: makeBackend(), totalBytes: 2 * MiB });
    expect(arena.view(arena.malloc(1), 0).byteLength).toBe(0);
  });

  it("keep their memory when nobody else holds the arena", async () => {
    const make = () => {
      const arena = new VmmArena({ backend: makeBackend(), totalBytes: 16 * MiB });
      const view = new Uint8Array(arena.view(arena.malloc(2 * MiB), 2 * MiB));
      return { view: view.fill(7), arena: new WeakRef(arena) };
    };
    const { view, arena } = make();
    for (let round = 0; round < 5; round++) {
      globalThis.gc?.();
      await setImmediate();
    }
    expect(view.every((byte) => byte === 7)).toBe(true);
    arena.deref()?.close();
    expect(view.byteLength).toBe(0);
  });
});

it("views beyond Node's limit are refused", () => {
  using arena = new VmmArena({ backend: hostBackend() });
  const address = arena.malloc(2 * MiB);
  expect(() => arena.view(address, constants.MAX_LENGTH + 1)).toThrow(
    expect.objectContaining({ code: "ERR_TENSOR_VIEW_TOO_LARGE", length: constants.MAX_LENGTH + 1 }),
  );
});

it("memory that is not the host's cannot be viewed", () => {
  using arena = new VmmArena({ backend: new StubBackend() });
  const address = arena.malloc(1);
  expect(() => arena.view(address, 1)).toThrow(expect.objectContaining({ code: "ERR_ARENA_NOT_LOADABLE" }));
});

it("an arena that becomes unreachable is closed", async () => {
  const backend = new StubBackend();
  const abandon = () => {
    const arena = new VmmArena({ backend });
    arena.malloc(1);
    arena.malloc(1);
  };
  abandon();
  await collectUntil(() => backend.released.length > 0);
  expect([backend.deallocations.length, backend.released.length]).toEqual([2, 1]);
});

it("an arena over wrapped host memory is closed once its last view is unreachable", async () => {
  const backend = new ToldHostBackend();
  const abandon = () => {
    const arena = new VmmArena({ backend, totalBytes: 2 * MiB });
    new Uint8Array(arena.view(arena.malloc(1), 100)).fill(1);
  };
  abandon();
  await collectUntil(() => backend.released > 0);
  expect(backend.released).toBe(1);
});
