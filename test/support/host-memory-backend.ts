import { hostBackend } from "../../src/arena/host-backend.js";
import type { VmmBackend } from "../../src/arena/vmm-backend.js";

/** Real host memory behind a backend written in TypeScript, with a list of what is allocated. */
export class HostMemoryBackend implements VmmBackend {
  readonly memory = "host";
  readonly live = new Map<bigint, number>();
  readonly #host = hostBackend();

  allocationGranularity(): number {
    return this.#host.allocationGranularity();
  }
  reserve(totalBytes: number): bigint {
    return this.#host.reserve(totalBytes);
  }
  allocate(va: bigint, bytes: number): bigint {
    const handle = this.#host.allocate(va, bytes);
    this.live.set(va, bytes);
    return handle;
  }
  deallocate(va: bigint, bytes: number, handle: bigint): void {
    this.live.delete(va);
    this.#host.deallocate(va, bytes, handle);
  }
  releaseReserve(base: bigint, totalBytes: number): void {
    this.#host.releaseReserve(base, totalBytes);
  }
}
