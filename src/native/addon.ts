/**
 * The interface of the native addon: the one place where its shape is written down. `native/node` implements it, `load.ts` checks it.
 *
 * Conventions: columns are parallel typed arrays, one entry per item. Byte counts and file offsets are safe integers in a Float64Array,
 * addresses are in a BigUint64Array. A failing call throws, or rejects with, an error whose message is the JSON of a {@link NativeFailure};
 * `failure.ts` turns it into the error classes of `errors.ts`. Whatever reads files or hashes runs on threads of the addon, never on
 * libuv's pool. Objects of the addon belong to the JavaScript thread that made them.
 */

/** What a native error carries across the boundary, as JSON. `facts` become fields of the JavaScript error. */
export interface NativeFailure {
  readonly code: string;
  readonly message: string;
  readonly facts: Readonly<Record<string, string | number>>;
}

/** A Uint8Array over memory that is not shared, in words that TypeScript before 5.7 knows too: from then on it is `Uint8Array<ArrayBuffer>`. */
export type Bytes = ReturnType<Uint8ArrayConstructor["of"]>;

/** Rejects the calls that were given it, with ERR_ABORTED. Work that cannot be interrupted runs on, and keeps no process alive. */
export interface NativeStop {
  stop(): void;
}

/** A parsed and validated `*.safetensors.index.json`: the files it names, in order of first mention, untrusted. Holds its weight map natively. */
export interface NativeIndex {
  readonly files: string[];
  readonly tensorCount: number;
}

/** One entry per shard, in the order of the paths given to {@link Addon.openShards}. */
export interface ShardColumns {
  /** File size in bytes. */
  readonly size: Float64Array;
  /** File offset of the first data byte (8 + header length). */
  readonly dataStart: Float64Array;
  /** What tells each file again (device, inode number, time of modification and, where those do not last, its header), opaque: 6 entries per file. A transfer compares it. */
  readonly identity: BigUint64Array;
  /** Alignment in bytes that direct I/O needs for file offsets and for memory (statx STATX_DIOALIGN); 0 where the kernel does not say. */
  readonly dioOffsetAlign: Uint32Array;
  readonly dioMemAlign: Uint32Array;
  /** How far the kernel reads ahead of one thread that reads through the page cache, in bytes. */
  readonly readAheadBytes: Float64Array;
  /** 1 where the driver `auto` reads, or may read, through the page cache: short files, and where O_DIRECT is refused. */
  readonly cachedUnderAuto: Uint8Array;
}

/** One entry per tensor, sorted by (shard, file offset, position in the header). */
export interface TensorColumns {
  readonly count: number;
  /** UTF-8 of all names, one after the other; `nameEnd[i]` is the end of name i in bytes. */
  readonly nameBytes: Uint8Array;
  readonly nameEnd: Float64Array;
  /** True when every name is ASCII: then byte offsets are string offsets. */
  readonly namesAscii: boolean;
  /** Index into the dtype table of `checkpoint/dtype.ts`. */
  readonly dtype: Uint8Array;
  readonly shard: Uint32Array;
  /** Absolute file offset of the tensor's first byte. */
  readonly offset: Float64Array;
  readonly length: Float64Array;
  /** `dims[dimEnd[i - 1] .. dimEnd[i]]` is the shape of tensor i. */
  readonly dimEnd: Uint32Array;
  readonly dims: Float64Array;
}

/** Headers of all shards, validated whole and, where an index was given, held against it. */
export interface NativeHeaders {
  shardColumns(): ShardColumns;
  /** Hands the columns over; a second call throws. */
  tensorColumns(): TensorColumns;
  /** Row of the tensor of that name, or -1. */
  find(name: string): number;
  /** Those of the paths asked about that something was at, once the headers were read. */
  existing(): string[];
  /** `[key, value, key, value, ...]` of one shard's `__metadata__`. */
  metadata(shard: number): string[];
}

/** Counters of an arena, read at one call: `[usedBytes, mappedBytes, liveAllocationCount, closed (0 or 1), pins]`. */
export type ArenaStats = readonly number[];

/** The arena's hot path and its life cycle. */
export interface NativeArena {
  readonly base: bigint;
  readonly totalBytes: number;
  readonly granularity: number;
  stats(): ArenaStats;
  /** The calls that frame a backend written in JavaScript; makes new functions at each call. */
  frame(): ArenaFrame;
  /** Native backends only: claims, maps, records. Returns the address. */
  malloc(bytes: number): bigint;
  /** The same on a native thread. */
  mallocInBackground(bytes: number): Promise<bigint>;
  /**
   * Native backends only: detaches the views of the allocation that starts at `address` and gives its memory back; false where there is none. Memory that
   * JavaScript has moved out of a view stays until it is collected. ERR_ARENA_BUSY while a transfer pins it, and then nothing is changed.
   */
  free(address: bigint): boolean;
  /** The same, the memory given back on a native thread. */
  freeInBackground(address: bigint): Promise<boolean>;
  /**
   * Native backends only: refuses new work, detaches all views, gives memory and reserve back, likewise. The {@link NativeFailure}s as JSON, in order;
   * null when closed before. ERR_ARENA_BUSY while anything is pinned, allocated or freed; the arena then stays open.
   */
  close(): string[] | null;
  /** The same, the memory given back on a native thread. */
  closeInBackground(): Promise<string[] | null>;
  /**
   * For a backend written in JavaScript: refuses new work and detaches all views. `[address, bytes, handle, ...]` of what is to be given back; null when
   * closed before. ERR_ARENA_BUSY also where JavaScript has moved memory out of a view.
   */
  closeRecords(): BigUint64Array | null;
  /** An ArrayBuffer over live memory, without copy, of at least one byte. Host memory only. */
  view(address: bigint, length: number): ArrayBuffer;
  /**
   * Detaches the views that begin in `[address, address + length)`. True where JavaScript has moved memory out of one of them, or has collected it just now,
   * so that the bytes may still be read.
   */
  endViews(address: bigint, length: number): boolean;
  /**
   * Keeps the live allocation that holds the whole of `[address, address + length)`, at least a byte, until it is released: `take` and `beginClose`
   * are ERR_ARENA_BUSY. ERR_ARENA_ADDRESS, ERR_ARENA_CLOSED.
   */
  pin(address: bigint, length: number): NativePin;
  /** `[address, bytes, ...]` of what is alive, in the order of addresses. */
  live(): BigUint64Array;
  /**
   * Native backends only, on a native thread: rejects where the mapped range, in whole pages, cannot be given to a network card as one region;
   * any of the host can. ERR_CUDA_REGION.
   */
  proveOneRegion(address: bigint, bytes: number): Promise<void>;
  /** A copy of device memory, made on a native thread; the memory is pinned meanwhile. */
  copyToHost(address: bigint, length: number): Promise<Bytes>;
  /** Bytes in huge pages now within `[address, address + length)`, or -1 where the kernel does not say. */
  hugePageBytes(address: bigint, length: number): number;
  /** As {@link NativeBackend.freeDeviceBytes}. */
  freeDeviceBytes(): Promise<number>;
}

/** Keeps an allocation from being freed. */
export interface NativePin {
  /** A second call does nothing. */
  release(): void;
}

/**
 * What an arena calls around the calls of a backend written in JavaScript, twelve to twenty-five nanoseconds each: arguments and results go
 * through `registers`, a buffer of four 64-bit places: address, bytes, handle, and 1 once the memory of the claim is there.
 *
 * A claim is ended by the next call, whichever it is: as the registers say, it is mapped, or its address space is lost.
 */
export interface ArenaFrame {
  readonly registers: ArrayBuffer;
  /** Claims rounded-up address space: address and bytes are in the registers. */
  claim(bytes: number): boolean;
  /** Ends the claim. */
  settle(): boolean;
  /**
   * Detaches the views of a live record and takes it out: address, bytes and handle are in the registers. False when the address is unknown.
   * ERR_ARENA_BUSY while pinned, and where JavaScript has moved memory out of a view.
   */
  take(address: bigint): boolean;
}

/** A part of {@link Addon.claimedBytes}. */
export interface NativeClaim {
  /** The sum of the others when this one was made. */
  claimedBefore(): number;
  change(bytes: number): void;
}

/** Memory for arenas: natively by `createArena`, or driven by JavaScript, which may only name ranges that this object has reserved. */
export interface NativeBackend {
  granularity(): number;
  /** Memory of the CUDA device that nobody has now; -1 where the memory is none of CUDA's. ERR_CUDA_NO_CONTEXT, ERR_CUDA_CALL. */
  freeDeviceBytes(): Promise<number>;
  /** Of {@link Addon.openKeepingBackend}: what is given back from now on is kept. All of it must be filled. */
  keepPages(): void;
  /** Bytes of kept pages that its allocations took. */
  takenPageBytes(): number;
  reserve(totalBytes: number): bigint;
  allocate(address: bigint, bytes: number): bigint;
  deallocate(address: bigint, bytes: number, handle: bigint): void;
  releaseReserve(base: bigint, totalBytes: number): void;
}

/** The CUDA driver. */
export interface CudaFacts {
  /** Path of the library, as the loader resolved it. */
  readonly library: string;
  /** Newest CUDA version that the driver serves, such as `12.4`. */
  readonly driverVersion: string;
  /** In the driver's order. */
  readonly devices: readonly CudaDeviceFacts[];
}

export interface CudaDeviceFacts {
  readonly name: string;
  readonly totalBytes: number;
  /** Such as `9.0`. */
  readonly computeCapability: string;
  /** Virtual memory management, without which there is no arena. */
  readonly virtualMemory: boolean;
  /** Memory can be exported to another process of this host. */
  readonly posixHandles: boolean;
  /** To another host of the NVLink fabric, where this host is part of one. */
  readonly fabricHandles: boolean;
  /** Network cards and storage reach an arena's memory. */
  readonly gpuDirectRdma: boolean;
  readonly dmaBuf: boolean;
}

/** Slots of pinned host memory that follow one another, and a thread that copies from there to a device. Dropped unclosed it closes itself. */
export interface NativeStaging {
  /**
   * Copies pieces of a slot that is free and filled; `from` counts from the slot's start, `to` are addresses of the target. `report` comes when they
   * are over.
   */
  copy(slot: number, from: Float64Array, to: BigUint64Array, length: Float64Array): void;
  /** Waits for copies in flight, gives everything back, ends. No read into a slot may be in flight. */
  close(): void;
}

/** Files of a transfer, one entry per file: path and the identity that the plan was made from. */
export interface TransferFiles {
  readonly paths: string[];
  readonly size: Float64Array;
  /** As in {@link ShardColumns}. */
  readonly identity: BigUint64Array;
  readonly dioOffsetAlign: Uint32Array;
  readonly dioMemAlign: Uint32Array;
}

/** What to read, one entry per piece, sorted by (file, offset), pieces of a file not overlapping. */
export interface TransferPieces {
  readonly file: Uint32Array;
  readonly offset: Float64Array;
  readonly length: Float64Array;
  readonly address: BigUint64Array;
}

export interface TransferSettings {
  /** 0 pread, 1 io_uring, 2 auto. */
  readonly driver: 0 | 1 | 2;
  /** Reading threads. */
  readonly threads: number;
  /** Longest single read in bytes, buffered and direct. */
  readonly bufferedBlockBytes: number;
  readonly directBlockBytes: number;
  /** Direct reads in flight. */
  readonly queueDepth: number;
  /** For tests: `[kind, nth, value, ...]` — 0 the nth read fails with errno value, 1 it brings at most value bytes, 2 it stalls for value ms,
   * 3 as 0 for direct reads only, 4 io_uring_enter fails with errno value from its nth call on. */
  readonly faults?: Float64Array;
}

/** One entry per file of what a transfer did. */
export interface TransferSummary {
  readonly bufferedBytes: Float64Array;
  /** Of `bufferedBytes`, those found in the page cache beforehand; -1 where nobody asked. */
  readonly cachedBytes: Float64Array;
  readonly directBytes: Float64Array;
  /** 1 where direct reads were made by threads: io_uring is refused, or not known to be sound on the file system. */
  readonly directByThreads: Uint8Array;
  /** Why a file was not read the way `auto` prefers; empty where it was. */
  readonly fallback: string[];
  /** What of each file's identity its file system did not keep: bit 0 the inode number, bit 1 the time of modification. */
  readonly unkept: Uint8Array;
  /** Reads made, of both lanes. */
  readonly reads: number;
}

/** Bytes, powers of two, one entry per file. */
export interface DirectAlign {
  /** Of file offsets and lengths. */
  readonly offset: Uint32Array;
  /** Of addresses. */
  readonly memory: Uint32Array;
}

/** The blocks of a transfer, were all of it read one way. */
export interface BlockCounts {
  /** Buffered. */
  readonly buffered: number;
  /** Directly; beside them blocks that are buffered still: unaligned ends, and where the driver is `auto` short ranges. */
  readonly direct: number;
  readonly rest: number;
  /** Bytes of direct blocks that go through a bounce buffer. */
  readonly bouncedBytes: number;
}

/** A transfer in flight. It pins its allocations in the arena until it has settled. */
export interface NativeTransfer {
  /** Bytes in place so far. */
  progressBytes(): number;
  /** Starts no further reads. The `done` callback comes no later than now; `settled` when the last read has returned. */
  abort(): void;
}

/** What the io_uring and direct I/O checks of the probe found: errno name, or empty when it works. */
export interface IoSupport {
  readonly ioUring: string;
  readonly directIo: string;
  /** As in {@link ShardColumns}. */
  readonly dioOffsetAlign: number;
  readonly dioMemAlign: number;
}

/**
 * What became of a setting: `set` here, for this process, its children and every UCX loaded later; `user-set`, and left as it is; `loaded-before`:
 * UCX was in the process already, with its default; `refused` by the C library for lack of memory.
 */
export type NativeUcxSettingState = "set" | "user-set" | "loaded-before" | "refused";

/** A variable to set where neither it nor one of `others` is set and UCX is not loaded yet. */
export interface NativeUcxSetting {
  readonly variable: string;
  readonly value: string;
  readonly others: string[];
}

/** NIXL's library, loaded for good. */
export interface NativeNixl {
  /** File it was loaded from, as the loader says. */
  readonly path: string;
  /** What became of each setting, in their order; the first load of the process settles it. */
  readonly ucxSettings: readonly NativeUcxSettingState[];
  /** Makes an agent on a thread of its own; `answer(failureJson | null, names of all plugins | null)` comes once. */
  createAgent(spec: NixlAgentSpec, answer: (failure: string | null, plugins: string[] | null) => void): NativeNixlAgent;
}

export interface NixlAgentSpec {
  readonly name: string;
  readonly progressThread: boolean;
  /** -1 for none. */
  readonly listenPort: number;
  /** `parameters`: `[key, value, ...]`; `strands`: after a failure other pieces may still be moving, until the agent ends. */
  readonly plugins: readonly { readonly name: string; readonly parameters: string[]; readonly strands: boolean }[];
}

/** Pieces of memory (`kind` 0 DRAM, 1 VRAM; `device` its number), or of a file (4; `address` is the offset, `device` the descriptor). */
export interface NixlDescriptors {
  readonly kind: 0 | 1 | 4;
  readonly address: BigUint64Array;
  readonly length: Float64Array;
  readonly device: number;
}

export interface NixlTransferSpec {
  /** Row of the plugin in the agent's specification. */
  readonly plugin: number;
  readonly write: boolean;
  readonly local: NixlDescriptors;
  readonly remote: NixlDescriptors;
  /** Agent of the remote side; undefined for this one. */
  readonly agent?: string | undefined;
  /** Registrations in use: none is undone before the transfer is released. */
  readonly registrations: number[];
  /** File of the remote side, for errors. */
  readonly file?: string | undefined;
}

/** All calls run in order on the agent's thread; none blocks JavaScript. Dropped unclosed it closes itself. */
export interface NativeNixlAgent {
  /** `pins`: `[address, length, ...]` within allocations of `arena`, held like `file` until the registration is undone. Its number. */
  register(
    plugin: number,
    pieces: NixlDescriptors,
    arena: NativeArena | null,
    pins: BigUint64Array | null,
    file: NativeFile | null,
  ): Promise<number>;
  /** ERR_NIXL_BUSY while a transfer that uses it is not released. */
  deregister(registration: number): Promise<void>;
  createTransfer(spec: NixlTransferSpec): Promise<number>;
  /** `done` comes once, at the end, a failure or an abort; `settled` once nothing is in flight, and keeps no process alive. */
  post(transfer: number, done: (failure: string | null) => void, settled: () => void): void;
  abort(transfer: number): void;
  releaseTransfer(transfer: number): Promise<void>;
  metadata(): Promise<Uint8Array>;
  /** Name of the other agent. */
  loadRemote(metadata: Uint8Array): Promise<string>;
  forgetRemote(name: string): Promise<void>;
  /** Aborts, waits for what is in flight, gives everything back, ends. `done` keeps no process alive. */
  close(done: (failure: string | null) => void): void;
}

/** A file opened, or a descriptor duplicated, for NIXL. Registrations hold it beyond `close`. */
export interface NativeFile {
  readonly number: number;
  /** Path where it is known. */
  readonly name: string;
  /** Bytes when it was opened. */
  readonly size: number;
  /** What of the planned identity its file system did not keep, as in {@link TransferSummary}. */
  readonly unkept: number;
  /** ERR_TRANSFER_FILE_CHANGED when it is not what it was when it was opened. */
  requireUnchanged(): Promise<void>;
  close(): void;
}

export interface Addon {
  version(): string;
  /** Parses and validates an index file on a native thread. */
  readIndex(path: string, stop?: NativeStop): Promise<NativeIndex>;
  /**
   * Opens, reads, validates all headers in parallel on native threads. `index` and `shardOfFile` (row of `paths` for each of the index's
   * files) restrict the tensors to what the index assigns to each shard. `asked`: paths for {@link NativeHeaders.existing}.
   */
  openShards(
    paths: string[],
    index: NativeIndex | null,
    shardOfFile: Uint32Array,
    threads: number,
    asked: string[],
    stop?: NativeStop,
  ): Promise<NativeHeaders>;
  readonly NativeStop: new () => NativeStop;

  openHostBackend(): NativeBackend;
  /** Addresses without memory, for measuring what an arena itself costs. */
  openEmptyBackend(): NativeBackend;
  /**
   * Memory of the device of that number, by the CUDA driver in `library` or where the loader finds it. `notice(handleType, reason)` comes at
   * most once, when FABRIC handles turn out not to be had; it keeps no process alive.
   */
  openCudaBackend(device: number, library: string | null, notice: (handleType: string, reason: string) => void): NativeBackend;
  /** The same on a native thread: making a context can take a second. */
  openCudaBackendInBackground(
    device: number,
    library: string | null,
    notice: (handleType: string, reason: string) => void,
  ): Promise<NativeBackend>;
  cudaFacts(library: string | null): Promise<CudaFacts>;
  /**
   * Makes slots of host memory ready for copies to `[target, target + targetBytes)`, within one allocation of an arena over a CUDA backend; both
   * allocations are pinned until the end. `report(slot, failureJson | null)` says that a slot is free: once when it is ready, and once after each copy;
   * after a failure, of every slot that waits. `ended(failuresJson)` comes once after `close`, when nothing is in flight or held any more, with what
   * could not be given back; never where copies are stuck. Neither keeps a process alive. ERR_ARENA_ADDRESS, ERR_ARENA_CLOSED,
   * ERR_ARENA_NOT_LOADABLE, ERR_TRANSFER_NO_THREAD
   */
  openStaging(
    memoryArena: NativeArena,
    memory: { readonly address: bigint; readonly slotBytes: number; readonly slots: number },
    targetArena: NativeArena,
    target: bigint,
    targetBytes: number,
    report: (slot: number, failure: string | null) => void,
    ended: (failures: string[]) => void,
  ): NativeStaging;
  /**
   * Number of the device whose context is current on this thread, in the driver's order; -1 where there is none, or the driver library is not
   * loaded. Loads nothing.
   */
  currentCudaDevice(library: string | null): number;
  /** An arena over a native backend, whose error when the address space cannot be had comes through. */
  createArena(backend: NativeBackend, totalBytes: number): NativeArena;
  /** An arena over `[base, base + totalBytes)` of a backend that JavaScript drives. `hostMemory`: the bytes can be touched by this process. */
  createExternalArena(base: bigint, totalBytes: number, granularity: number, hostMemory: boolean): NativeArena;
  /**
   * The arena that `mx_malloc` and `mx_free`, exported to C, act on; its backend must be native. `device`: as C callers name it, -1 the host.
   * `report(operation, failureJson)`: what they are not told; it keeps no process alive. ERR_ARENA_ACTIVE over another that is open.
   */
  setActiveArena(arena: NativeArena | null, device: number, report: (operation: string, failure: string) => void): void;
  /** ERR_ARENA_ACTIVE where an arena is active that is open. */
  requireNoActiveArena(): void;

  /** Starts reading into `arena`. `done(failureJson | null, summary | null)` comes exactly once, `settled()` once after nothing is in flight any more. */
  startTransfer(
    arena: NativeArena,
    files: TransferFiles,
    pieces: TransferPieces,
    settings: TransferSettings,
    done: (failure: string | null, summary: TransferSummary | null) => void,
    settled: () => void,
  ): NativeTransfer;
  /** What direct reads of each file keep to, from what statx told: 4096 where it told nothing, and of offsets at least. */
  directAlign(dioOffsetAlign: Uint32Array, dioMemAlign: Uint32Array): DirectAlign;
  /** Cuts the pieces as a transfer would, and counts. Addresses may begin at 0: only their place in a huge page matters. */
  countBlocks(files: TransferFiles, pieces: TransferPieces, settings: TransferSettings): BlockCounts;
  /**
   * Maps each piece privately over its place in a host arena, on a native thread: addresses congruent to file offsets modulo the page size, the
   * pages of a piece belong to no other. Resolves to what `TransferSummary.unkept` holds.
   */
  mapFiles(arena: NativeArena, files: TransferFiles, pieces: TransferPieces): Promise<Uint8Array>;

  /** SHA-256 of memory ranges, 32 bytes each, on `threads` native threads. The arena is pinned meanwhile. */
  digestMemory(arena: NativeArena, address: BigUint64Array, length: Float64Array, threads: number): Promise<Uint8Array>;
  /** SHA-256 of whole files, 32 bytes each. */
  digestFiles(paths: string[], threads: number): Promise<Uint8Array>;

  /** Host memory of one arena that takes kept pages first, and may keep its own: `maxBytes` in all, `idleMs` until they are given back. */
  openKeepingBackend(maxBytes: number, idleMs: number): NativeBackend;
  /** Kept by the process now. */
  keptPageBytes(): number;
  /** Gives so many bytes back at least, the oldest first, where there are as many; resolves to how many. */
  releaseKeptPages(bytes: number): Promise<number>;
  /** Counts memory that a load will take, until that is changed to 0, or the object is gone with its thread. */
  claimMemory(bytes: number): NativeClaim;
  /** Of all threads of the process. */
  claimedBytes(): number;

  pageBytes(): number;
  /** Processors this process may use: affinity and cgroup quota counted in. */
  availableParallelism(): number;
  ioSupport(path: string): Promise<IoSupport>;

  /** `path` may be a bare name for the loader's search. ERR_NIXL_LOAD, ERR_NIXL_SYMBOLS, ERR_NIXL_STUB */
  /** Puts the settings into the environment that C sees, then loads the library. */
  loadNixl(path: string, settings: NativeUcxSetting[]): Promise<NativeNixl>;
  /** Why a shared library cannot be loaded; empty when it can, and then it is. */
  whyLibraryNotLoadable(name: string): string;
  /** ERR_TRANSFER_OPEN */
  /** With `identity` and `size` of a plan: ERR_TRANSFER_FILE_CHANGED when the file is another, or in another state. */
  openFile(path: string, identity?: BigUint64Array, size?: number): Promise<NativeFile>;
  duplicateFile(fd: number): NativeFile;
}
