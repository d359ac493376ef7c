// Generated from native/node by `npm run build`: change the Rust, and commit this file with it.
import type { Address, ArenaFrame, Bytes } from "./hand-typed.js";

/**
 * Memory for arenas: natively by `createArena`, or driven by JavaScript, which may only name
 * ranges that this object has reserved.
 */
export declare class NativeBackend {
  private constructor();
  granularity(): number;
  /** Of `openKeepingBackend`: what is given back from now on is kept. All of it must be filled. */
  keepPages(): void;
  /** Bytes of kept pages that its allocations took. */
  takenPageBytes(): number;
  /**
   * Memory of the CUDA device that nobody has now; null where the memory is none of CUDA's.
   * ERR_CUDA_NO_CONTEXT, ERR_CUDA_CALL.
   */
  freeDeviceBytes(): Promise<number | null>;
  reserve(totalBytes: number): Address;
  allocate(address: Address, bytes: number): Address;
  deallocate(address: Address, bytes: number, handle: Address): void;
  releaseReserve(base: Address, totalBytes: number): void;
}

export declare function openHostBackend(): NativeBackend;

/**
 * Host memory of one arena that takes kept pages first, and may keep its own: `maxBytes` in all,
 * `idleMs` until they are given back.
 */
export declare function openKeepingBackend(maxBytes: number, idleMs: number): NativeBackend;

/** Kept by the process now. */
export declare function keptPageBytes(): number;

/**
 * Gives so many bytes back at least, the oldest first, where there are as many; resolves to how
 * many.
 */
export declare function releaseKeptPages(bytes: number): Promise<number>;

/** Addresses without memory, for measuring what an arena itself costs. */
export declare function openEmptyBackend(): NativeBackend;

/** Keeps an allocation from being freed. Collected unreleased it releases itself. */
export declare class NativePin {
  private constructor();
  /** A second call does nothing. */
  release(): void;
}

/** What is alive in an arena at one moment. */
export interface NativeLiving {
  /** `[address, bytes, ...]`, in the order of addresses. */
  readonly allocations: BigUint64Array;
  /**
   * Between them: nothing for ever; perhaps memory that is allocated or given back just now;
   * perhaps memory that was freed and is still pinned or seen.
   */
  readonly holes: "empty" | "moving" | "held";
}

/** The arena's hot path and its life cycle. */
export declare class NativeArena {
  private constructor();
  get base(): Address;
  get totalBytes(): number;
  get granularity(): number;
  /** Everything ever handed out, in bytes, holes included. */
  get usedBytes(): number;
  /** Bytes of the allocations alive. */
  get mappedBytes(): number;
  get liveAllocationCount(): number;
  get closed(): boolean;
  /** The calls that frame a backend written in JavaScript; makes new functions at each call. */
  frame(): ArenaFrame;
  /** Native backends only: claims, maps, records. Returns the address. */
  malloc(bytes: number): Address;
  /** The same on a native thread. */
  mallocInBackground(bytes: number): Promise<Address>;
  /**
   * Native backends only: detaches the views of the allocation that starts at `address` and
   * gives its memory back; nothing where there is none. A promise where that takes time, on a
   * native thread. Memory that JavaScript has moved out of a view stays until it is collected.
   * ERR_ARENA_BUSY while a transfer pins it, and then nothing is changed.
   */
  free(address: Address): Promise<void> | null;
  /**
   * Native backends only: refuses new work, detaches all views, gives memory and reserve back,
   * likewise. The failures as JSON, in order; null when closed before. ERR_ARENA_BUSY while
   * anything is pinned or allocated; the arena then stays open.
   */
  close(): Array<string> | Promise<Array<string>> | null;
  /**
   * For a backend written in JavaScript: refuses new work and detaches all views.
   * `[address, bytes, handle, ...]` of what is to be given back; null when closed before.
   * ERR_ARENA_BUSY also where JavaScript has moved memory out of a view.
   */
  closeRecords(): BigUint64Array | null;
  /**
   * Detaches the views that begin in `[address, address + length)`. True where JavaScript has
   * moved memory out of one of them, or has collected it just now, so that the bytes may still
   * be read.
   */
  endViews(address: Address, length: number): boolean;
  /** An ArrayBuffer over live memory, without copy, of at least one byte. Host memory only. */
  view(address: Address, length: number): ArrayBuffer;
  /**
   * Keeps the live allocation that holds the whole of `[address, address + length)`, at least a
   * byte, until it is released: freeing it and closing are ERR_ARENA_BUSY. ERR_ARENA_ADDRESS,
   * ERR_ARENA_CLOSED.
   */
  pin(address: Address, length: number): NativePin;
  /** What is alive now, and what lies between. */
  living(): NativeLiving;
  /**
   * Native backends only, on a native thread: rejects where the mapped range, in whole pages,
   * cannot be given to a network card as one region; any of the host can. ERR_CUDA_REGION.
   */
  proveOneRegion(address: Address, bytes: number): Promise<void>;
  /** A copy of device memory, made on a native thread; the memory is pinned meanwhile. */
  copyToHost(address: Address, length: number): Promise<Bytes>;
  /** As `NativeBackend.freeDeviceBytes`. */
  freeDeviceBytes(): Promise<number | null>;
  /**
   * Bytes in huge pages now within `[address, address + length)`; null where the kernel does not
   * say.
   */
  hugePageBytes(address: Address, length: number): number | null;
}

/** An arena over a native backend, whose error when the address space cannot be had comes through. */
export declare function createArena(backend: NativeBackend, totalBytes: number): NativeArena;

/**
 * An arena over `[base, base + totalBytes)` of a backend that JavaScript drives. `hostMemory`: the
 * bytes can be touched by this process.
 */
export declare function createExternalArena(base: Address, totalBytes: number, granularity: number, hostMemory: boolean): NativeArena;

/**
 * Rejects the calls that were given it, with ERR_ABORTED. Work that cannot be interrupted, as in a
 * read of a file system that hangs, runs on, and keeps no process alive.
 */
export declare class NativeStop {
  constructor();
  stop(): void;
}

/** Bytes, powers of two, one entry per file. */
export interface DirectAlignColumns {
  /** Of file offsets and lengths. */
  readonly offset: Uint32Array;
  /** Of addresses. */
  readonly memory: Uint32Array;
}

/**
 * What direct reads of each file keep to, from what statx told: 4096 where it told nothing, and of
 * offsets at least.
 */
export declare function directAlign(dioOffsetAlign: Uint32Array, dioMemAlign: Uint32Array): DirectAlignColumns;

/** What is the same for all transfers, for the plan to count. */
export interface LaneLimits {
  /** Shorter uncached ranges are read through the page cache. */
  readonly minDirectBytes: number;
  /** Threads that read directly where no ring can be used. */
  readonly directThreads: number;
  /** Bounce buffers in flight, and the length of each in bytes. */
  readonly maxBounces: number;
  readonly maxBounceBytes: number;
}

export declare function laneLimits(): LaneLimits;

/** The blocks of a transfer, were all of it read one way. */
export interface BlockCounts {
  /** Buffered. */
  readonly buffered: number;
  /**
   * Directly; beside them blocks that are buffered still: unaligned ends, and where the driver
   * is `auto` short ranges.
   */
  readonly direct: number;
  readonly rest: number;
  /** Bytes of direct blocks that go through a bounce buffer. */
  readonly bouncedBytes: number;
}

/**
 * Cuts the pieces as a transfer would, and counts. Addresses may begin at 0: only their place in a
 * huge page matters.
 */
export declare function countBlocks(files: TransferFiles, pieces: TransferPieces, settings: TransferSettings): BlockCounts;

/**
 * The arena that `mx_malloc` and `mx_free`, exported to C, act on; its backend must be native.
 * `device`: number of its CUDA device, null for the host. `report`: what C callers are not told;
 * it keeps no process alive. ERR_ARENA_ACTIVE over another that is open.
 */
export declare function setActiveArena(
  arena: NativeArena | undefined | null,
  device: number | undefined | null,
  report: (operation: string, failureJson: string) => void,
): void;

/** ERR_ARENA_ACTIVE where an arena is active that is open. */
export declare function requireNoActiveArena(): void;

/**
 * A parsed and validated `*.safetensors.index.json`: the files it names, in order of first
 * mention, untrusted. Holds its weight map natively.
 */
export declare class NativeIndex {
  private constructor();
  get files(): Array<string>;
  get tensorCount(): number;
}

/** Parses and validates an index file on a native thread. */
export declare function readIndex(path: string, stop?: NativeStop | undefined | null): Promise<NativeIndex>;

/**
 * Opens, reads, validates all headers in parallel on native threads. `index` and `shardOfFile`
 * (row of `paths` for each of the index's files) restrict the tensors to what the index assigns to
 * each shard. `asked`: paths for `NativeHeaders.existing`.
 */
export declare function openShards(
  paths: Array<string>,
  index: NativeIndex | undefined | null,
  shardOfFile: Uint32Array,
  threads: number,
  asked: Array<string>,
  stop?: NativeStop | undefined | null,
): Promise<NativeHeaders>;

/** One entry per shard, in the order of the paths given to `openShards`. */
export interface ShardColumns {
  /** File size in bytes. */
  readonly size: Float64Array;
  /** File offset of the first data byte (8 + header length). */
  readonly dataStart: Float64Array;
  /**
   * What tells each file again (device, inode number, time of modification and, where those do
   * not last, its header), opaque: 6 entries per file. A transfer compares it.
   */
  readonly identity: BigUint64Array;
  /**
   * Alignment in bytes that direct I/O needs for file offsets (statx STATX_DIOALIGN); 0 where
   * the kernel does not say.
   */
  readonly dioOffsetAlign: Uint32Array;
  /** The same for memory. */
  readonly dioMemAlign: Uint32Array;
  /** How far the kernel reads ahead of one thread that reads through the page cache, in bytes. */
  readonly readAheadBytes: Float64Array;
  /**
   * 1 where the driver `auto` reads, or may read, through the page cache: short files, and where
   * O_DIRECT is refused.
   */
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
export declare class NativeHeaders {
  private constructor();
  shardColumns(): ShardColumns;
  /** Hands the columns over; a second call throws. */
  tensorColumns(): TensorColumns;
  /** Row of the tensor of that name, or null. */
  find(name: string): number | null;
  /** Those of the paths asked about that something was at, once the headers were read. */
  existing(): Array<string>;
  /** `[key, value, key, value, ...]` of one shard's `__metadata__`. */
  metadata(shard: number): Array<string>;
}

/** A part of `claimedBytes`. Ends with its object, which a worker that is terminated takes along. */
export declare class NativeClaim {
  private constructor();
  /** The sum of the others when this one was made. */
  claimedBefore(): number;
  change(bytes: number): void;
}

/**
 * Counts memory that a load will take, until that is changed to 0, or the object is gone with its
 * thread.
 */
export declare function claimMemory(bytes: number): NativeClaim;

/** Of all threads of the process. */
export declare function claimedBytes(): number;

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

export declare function cudaFacts(library?: string | undefined | null): Promise<CudaFacts>;

/**
 * Memory of the device of that number, by the CUDA driver in `library` or where the loader finds
 * it. `notice` comes at most once, when FABRIC handles turn out not to be had; it keeps no process
 * alive.
 */
export declare function openCudaBackend(
  device: number,
  library: string | undefined | null,
  notice: (handleType: string, reason: string) => void,
): NativeBackend;

/** The same on a native thread: making a context can take a second. */
export declare function openCudaBackendInBackground(
  device: number,
  library: string | undefined | null,
  notice: (handleType: string, reason: string) => void,
): Promise<NativeBackend>;

/**
 * Number of the device whose context is current on this thread, in the driver's order; null where
 * there is none, or the driver library is not loaded. Loads nothing.
 */
export declare function currentCudaDevice(library?: string | undefined | null): number | null;

/** Slots of pinned host memory that follow one another, within one allocation. */
export interface StagingMemory {
  readonly address: Address;
  readonly slotBytes: number;
  readonly slots: number;
}

/**
 * Makes slots of host memory ready for copies to `[target, target + targetBytes)`, within one
 * allocation of an arena over a CUDA backend; both allocations are pinned until the end. `report`
 * says that a slot is free: once when it is ready, and once after each copy; after a failure, of
 * every slot that waits. `ended` comes once after `close`, when nothing is in flight or held any
 * more, with what could not be given back; never where copies are stuck. Neither keeps a process
 * alive. ERR_ARENA_ADDRESS, ERR_ARENA_CLOSED, ERR_ARENA_NOT_LOADABLE, ERR_TRANSFER_NO_THREAD
 */
export declare function openStaging(
  memoryArena: NativeArena,
  memory: StagingMemory,
  targetArena: NativeArena,
  target: Address,
  targetBytes: number,
  report: (slot: number, failureJson: string | null) => void,
  ended: (failuresJson: string[]) => void,
): NativeStaging;

/**
 * Slots of pinned host memory, and a thread that copies from there to a device. Dropped unclosed
 * it closes itself.
 */
export declare class NativeStaging {
  private constructor();
  /**
   * Copies pieces of a slot that is free and filled; `from` counts from the slot's start, `to`
   * are addresses of the target. `report` comes when they are over.
   */
  copy(slot: number, from: Float64Array, to: BigUint64Array, length: Float64Array): void;
  /**
   * Waits for copies in flight, gives everything back, ends. No read into a slot may be in
   * flight.
   */
  close(): void;
}

/**
 * SHA-256 of memory ranges, 32 bytes each, on `threads` native threads. The arena is pinned
 * meanwhile.
 */
export declare function digestMemory(
  arena: NativeArena,
  address: BigUint64Array,
  length: Float64Array,
  threads: number,
): Promise<Uint8Array>;

/** SHA-256 of whole files, 32 bytes each. */
export declare function digestFiles(paths: Array<string>, threads: number): Promise<Uint8Array>;

/** NIXL's library, loaded for good. */
export declare class NativeNixl {
  private constructor();
  /** File it was loaded from, as the loader says. */
  get path(): string;
  /** What became of each setting, in their order; the first load of the process settles it. */
  get ucxSettings(): Array<UcxSettingState>;
  /** Makes an agent on a thread of its own; `answer` comes once, with the names of all plugins. */
  createAgent(spec: NixlAgentSpec, answer: (failureJson: string | null, plugins: string[] | null) => void): NativeNixlAgent;
}

/**
 * Puts the settings into the environment that C sees, then loads the library. `path` may be a bare
 * name for the loader's search. ERR_NIXL_LOAD, ERR_NIXL_SYMBOLS, ERR_NIXL_STUB
 */
export declare function loadNixl(path: string, settings: Array<NativeUcxSetting>): Promise<NativeNixl>;

/** What became of a setting. */
export type UcxSettingState =
  /** Here, for this process, its children and every UCX loaded later. */
  | "set"
  /** By the user, and left as it is. */
  | "user-set"
  /** UCX was in the process already, with its default. */
  | "loaded-before"
  /** By the C library, for lack of memory. */
  | "refused";

/** A variable to set where neither it nor one of `others` is set and UCX is not loaded yet. */
export interface NativeUcxSetting {
  readonly variable: string;
  readonly value: string;
  readonly others: Array<string>;
}

/** Why a shared library cannot be loaded; null when it can, and then it is. */
export declare function whyLibraryNotLoadable(name: string): string | null;

export interface NixlPluginSpec {
  readonly name: string;
  /** `[key, value, key, value, ...]` */
  readonly parameters: Array<string>;
  /** After a failure other pieces may still be moving, until the agent ends. */
  readonly strands: boolean;
}

export interface NixlAgentSpec {
  readonly name: string;
  readonly progressThread: boolean;
  readonly listenPort: number | null;
  readonly plugins: Array<NixlPluginSpec>;
}

/** What descriptors stand for. */
export type SegmentKind = "DRAM" | "VRAM" | "FILE";

/**
 * Pieces of memory, `device` its number; or of a file: `address` is the offset, `device` the
 * descriptor.
 */
export interface NixlDescriptors {
  readonly kind: SegmentKind;
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
  readonly registrations: Array<number>;
  /** File of the remote side, for errors. */
  readonly file?: string | undefined;
}

/**
 * All calls run in order on the agent's thread; none blocks JavaScript. Dropped unclosed it closes
 * itself.
 */
export declare class NativeNixlAgent {
  private constructor();
  /**
   * `pins`: `[address, length, ...]` within allocations of `arena`, held like `file` until the
   * registration is undone. Its number.
   */
  register(
    plugin: number,
    pieces: NixlDescriptors,
    arena?: NativeArena | undefined | null,
    pins?: BigUint64Array | undefined | null,
    file?: NativeFile | undefined | null,
  ): Promise<number>;
  /** ERR_NIXL_BUSY while a transfer that uses it is not released. */
  deregister(registration: number): Promise<void>;
  createTransfer(spec: NixlTransferSpec): Promise<number>;
  /**
   * `done` comes once, at the end, a failure or an abort; `settled` once nothing is in flight,
   * and keeps no process alive.
   */
  post(transfer: number, done: (failureJson: string | null) => void, settled: () => void): void;
  abort(transfer: number): void;
  releaseTransfer(transfer: number): Promise<void>;
  metadata(): Promise<Uint8Array>;
  /** Name of the other agent. */
  loadRemote(metadata: Uint8Array): Promise<string>;
  forgetRemote(name: string): Promise<void>;
  /**
   * Aborts, waits for what is in flight, gives everything back, ends. `done` keeps no process
   * alive.
   */
  close(done: (failureJson: string | null) => void): void;
}

/** A file opened, or a descriptor duplicated, for NIXL. Registrations hold it beyond `close`. */
export declare class NativeFile {
  private constructor();
  get number(): number;
  /** Path where it is known. */
  get name(): string;
  /** Bytes when it was opened. */
  get size(): number;
  /** What of the planned identity its file system did not keep, as in `TransferSummary`. */
  get unkept(): number;
  /** ERR_TRANSFER_FILE_CHANGED when it is not what it was when it was opened. */
  requireUnchanged(): Promise<void>;
  close(): void;
}

/** ERR_TRANSFER_OPEN */
export declare function duplicateFile(fd: number): NativeFile;

/**
 * With `planned` and `size` of a plan: ERR_TRANSFER_FILE_CHANGED when the file is another, or in
 * another state. ERR_TRANSFER_OPEN
 */
export declare function openFile(
  path: string,
  planned?: BigUint64Array | undefined | null,
  size?: number | undefined | null,
): Promise<NativeFile>;

/**
 * What the io_uring and direct I/O checks of the probe found: name of the errno, null where it
 * works.
 */
export interface IoSupport {
  readonly ioUring: string | null;
  readonly directIo: string | null;
  /** As in `ShardColumns`. */
  readonly dioOffsetAlign: number;
  readonly dioMemAlign: number;
}

export declare function version(): string;

export declare function pageBytes(): number;

/** Processors this process may use: affinity and cgroup quota counted in. */
export declare function availableParallelism(): number;

export declare function ioSupport(path: string): Promise<IoSupport>;

/** Files of a transfer, one entry per file: path and the identity that the plan was made from. */
export interface TransferFiles {
  readonly paths: Array<string>;
  readonly size: Float64Array;
  /** As in `ShardColumns`. */
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

/**
 * Which lanes a transfer may use: buffered reads only, direct ones where they can be made, or both
 * at once with a way out.
 */
export type ReadDriver = "pread" | "io_uring" | "auto";

export interface TransferSettings {
  readonly driver: ReadDriver;
  /** Reading threads. */
  readonly threads: number;
  /** Longest single read in bytes, buffered. */
  readonly bufferedBlockBytes: number;
  /** The same, direct. */
  readonly directBlockBytes: number;
  /** Direct reads in flight. */
  readonly queueDepth: number;
}

/** What a transfer did, one entry per file. */
export interface TransferSummary {
  readonly bufferedBytes: Float64Array;
  /** Of `bufferedBytes`, those found in the page cache beforehand; null where nobody asked. */
  readonly cachedBytes: (number | null)[];
  readonly directBytes: Float64Array;
  /**
   * 1 where direct reads were made by threads: io_uring is refused, or not known to be sound on
   * the file system.
   */
  readonly directByThreads: Uint8Array;
  /** Why a file was not read the way `auto` prefers; empty where it was. */
  readonly fallback: Array<string>;
  /**
   * What of each file's identity its file system did not keep: bit 0 the inode number, bit 1 the
   * time of modification.
   */
  readonly unkept: Uint8Array;
  /** Reads made, of both lanes. */
  readonly reads: number;
}

/** A transfer in flight. It pins its allocations in the arena until it has settled. */
export declare class NativeTransfer {
  private constructor();
  /** Bytes in place so far. */
  progressBytes(): number;
  /**
   * Starts no further reads. The `done` callback comes no later than now; `settled` when the
   * last read has returned.
   */
  abort(): void;
}

/**
 * Starts reading into `arena`. `done` comes exactly once, `settled` once after nothing is in
 * flight any more.
 */
export declare function startTransfer(
  arena: NativeArena,
  files: TransferFiles,
  pieces: TransferPieces,
  settings: TransferSettings,
  done: (failureJson: string | null, summary: TransferSummary | null) => void,
  settled: () => void,
): NativeTransfer;

/**
 * Maps each piece privately over its place in a host arena, on a native thread: addresses
 * congruent to file offsets modulo the page size, the pages of a piece belong to no other.
 * Resolves to what `TransferSummary.unkept` holds.
 */
export declare function mapFiles(arena: NativeArena, files: TransferFiles, pieces: TransferPieces): Promise<Uint8Array>;
