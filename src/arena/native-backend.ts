import type { NativeBackend } from "../native/addon.js";
import { callNative } from "../native/failure.js";
import type { VmmBackend } from "./vmm-backend.js";

const methods: readonly (keyof VmmBackend)[] = ["allocationGranularity", "reserve", "allocate", "deallocate", "releaseReserve"];

/** What the factories of this package made: nobody else's class stands behind. */
const genuine = new WeakSet<VmmBackend>();

/**
 * A backend of the addon. An arena over it works natively, from any thread; called directly, or
 * wrapped by another backend, it refuses ranges that this object has not reserved
 * (ERR_ARENA_ADDRESS). Opened at the first call.
 */
export class AddonBackend implements VmmBackend {
  readonly memory: "host" | "device";
  readonly device: string;
  readonly #open: () => NativeBackend;
  #opened: NativeBackend | undefined;

  constructor(memory: "host" | "device", device: string, open: () => NativeBackend) {
    this.memory = memory;
    this.device = device;
    this.#open = open;
    if (new.target === AddonBackend) genuine.add(this);
  }

  /** @internal */
  get native(): NativeBackend {
    this.#opened ??= callNative(this.#open);
    return this.#opened;
  }

  allocationGranularity(): number {
    return callNative(() => this.native.granularity());
  }

  reserve(totalBytes: number): bigint {
    return callNative(() => this.native.reserve(totalBytes));
  }

  allocate(va: bigint, bytes: number): bigint {
    return callNative(() => this.native.allocate(va, bytes));
  }

  deallocate(va: bigint, bytes: number, handle: bigint): void {
    callNative(() => this.native.deallocate(va, bytes, handle));
  }

  releaseReserve(base: bigint, totalBytes: number): void {
    callNative(() => this.native.releaseReserve(base, totalBytes));
  }
}

/**
 * The native half of an unaltered backend of this package, whose methods an arena may then bypass.
 */
export function nativeBackendOf(backend: VmmBackend): NativeBackend | undefined {
  if (!(backend instanceof AddonBackend) || !genuine.has(backend)) return undefined;
  return methods.some((method) => Object.hasOwn(backend, method)) ? undefined : backend.native;
}
