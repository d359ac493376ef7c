import type { VmmArena } from "../arena/arena.js";
import type { TransferFiles, TransferPieces, TransferSummary } from "../native/addon.js";
import type { DriverBytes, ReadShape } from "./driver-bytes.js";
import type { GdsLimits } from "./gds/load-limits.js";
import type { GdsPath } from "./gds/path-statistics.js";

/** What a driver can do; the loader asks these flags, never the name. */
export interface DriverCapabilities {
  /** Kinds of memory it can fill. */
  readonly memory: readonly ("host" | "device")[];
  /**
   * True when bytes are copied into the arena's own memory; false when the file itself is mapped
   * there.
   */
  readonly copies: boolean;
  /** True when the filled memory can be registered for RDMA. */
  readonly registrable: boolean;
}

/** One batch: which pieces of which files go where, as flat columns. */
export interface TransferBatch {
  /**
   * Arena that all addresses lie in, in one live allocation. It is pinned until the transfer has
   * settled.
   */
  readonly arena: VmmArena;
  readonly files: TransferFiles;
  readonly pieces: TransferPieces;
  /** Reading threads. */
  readonly threads: number;
  /** Longest read in bytes. */
  readonly maxChunkBytes: number;
  /** Plugin of the driver `nixl`. Default `POSIX` into host memory, `GDS_MT` into a device's. */
  readonly plugin?: string | undefined;
  /** What the variables MX_GDS_* ask of reads by GDS_MT. */
  readonly gds?: Omit<GdsLimits, "maxChunkBytes"> | undefined;
}

/**
 * Way that bytes took: out of the page cache or through it, around it by io_uring or by threads,
 * mapped, through pinned buffers, or by a plugin of NIXL's.
 */
export type ReadPath = "buffered" | "io_uring" | "direct-threads" | "map" | "staged" | "nixl";

/** What a batch did. */
export interface BatchSummary extends TransferSummary {
  /**
   * One entry per file: the way of its bytes, where the counts of `TransferSummary` do not tell it.
   */
  readonly ways?: readonly (ReadPath | undefined)[];
  /** Only where a plugin of NIXL's read. */
  readonly nixl?: NixlBatchSummary;
}

/** What a plugin of NIXL's did for a batch. */
export interface NixlBatchSummary {
  readonly plugin: string;
  readonly windows: number;
  /**
   * Of files and of memory; milliseconds in registering and undoing it. Windows overlap, so they
   * can add up to more than `ms`.
   */
  readonly registrations: { readonly count: number; readonly bytes: number; readonly ms: number };
  /** Milliseconds in transfers; they overlap likewise. */
  readonly transferMs: number;
  /** Milliseconds from the agent's creation to its end. */
  readonly ms: number;
  /** Whether cuFile read directly; only of plugins that read through it. */
  readonly path?: GdsPath;
}

/**
 * A batch as far as a driver needs it to say what it will do. Addresses may count from 0: what
 * matters is their place in a huge page.
 */
export interface ForecastBatch extends Pick<TransferBatch, "files" | "pieces" | "threads" | "maxChunkBytes" | "plugin" | "gds"> {
  readonly memory: "host" | "device";
}

/**
 * What a driver will do with the bytes that take one way. Which bytes those are may be decided only
 * when they are read.
 */
export interface ForecastWay {
  readonly path: ReadPath;
  /** Which bytes take it, in words. */
  readonly of: string;
  /** Reads there are if all such bytes take it. */
  readonly reads: number;
  /** The longest that a read may be. */
  readonly maxReadBytes: number;
  /** Reads begin and end at multiples of this in the file; 1 for anywhere. */
  readonly alignBytes: number;
  /** How often memory is filled and handed on, where that goes window by window. */
  readonly windows?: number;
}

/** A batch on its way; `Summary` is what it tells at its end. */
export interface Transfer<Summary = BatchSummary> {
  /**
   * Resolves when every byte is in place; rejects at the first failure, while other reads may still
   * be in flight.
   */
  readonly done: Promise<Summary>;
  /**
   * Resolves when nothing is in flight any more and the arena is no longer pinned. Never rejects,
   * and keeps no process alive.
   */
  readonly settled: Promise<void>;
  progressBytes(): number;
  /**
   * Starts no further reads; `done` rejects with ERR_TRANSFER_ABORTED unless it is decided already.
   */
  abort(): void;
}

/**
 * How bytes move. All drivers give the same bytes for the same batch; `pread` is the one that the
 * others are measured by.
 */
export interface TransferDriver {
  readonly name: string;
  readonly capabilities: DriverCapabilities;
  /**
   * What it will take of the host's memory beside the tensors, at most. Nothing is opened or
   * allocated.
   */
  takes(shape: ReadShape): DriverBytes;
  /**
   * What it will do with a batch: its ways, and how it cuts the pieces into reads. No file is
   * opened.
   */
  forecast(batch: ForecastBatch): readonly ForecastWay[];
  /**
   * Starts a batch on native threads.
   * @throws ERR_ARENA_ADDRESS, ERR_TRANSFER_IO_URING_REFUSED
   */
  submit(batch: TransferBatch): Transfer;
}
