import { hostBackend } from "../../src/arena/host-backend.js";
import { StubBackend } from "../../src/arena/stub-backend.js";
import type { VmmBackend } from "../../src/arena/vmm-backend.js";
import { arenaContract } from "./arena.contract.js";

/** The least that the interface asks for. */
class MinimalBackend implements VmmBackend {
  #next = 0x20_0000_0000_0000n;

  allocationGranularity(): number {
    return 4096;
  }
  reserve(totalBytes: number): bigint {
    const base = this.#next;
    this.#next += BigInt(totalBytes);
    return base;
  }
  allocate(): bigint {
    return 2n ** 64n - 1n;
  }
  deallocate(): void {}
  releaseReserve(): void {}
}

/** The host backend as a user may wrap it: the arena has to go through its methods. */
function wrappedHostBackend(): VmmBackend {
  const inner = hostBackend();
  return {
    memory: "host",
    allocationGranularity: () => inner.allocationGranularity(),
    reserve: (totalBytes) => inner.reserve(totalBytes),
    allocate: (va, bytes) => inner.allocate(va, bytes),
    deallocate: (va, bytes, handle) => inner.deallocate(va, bytes, handle),
    releaseReserve: (base, totalBytes) => inner.releaseReserve(base, totalBytes),
  };
}

arenaContract("the stub", () => new StubBackend());
arenaContract("a stub of granularity 256", () => new StubBackend({ granularity: 256 }));
arenaContract("a backend in TypeScript", () => new MinimalBackend());
arenaContract("the host backend", hostBackend);
arenaContract("the host backend behind another", wrappedHostBackend);
