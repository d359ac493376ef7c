import { type DeviceName, memoryKindOf, requireDeviceName } from "../arena/device-name.js";
import { optionInvalid, requireInteger, requireKnown, requireOneOf, requirePowerOfTwo } from "../arguments.js";
import { dtypes } from "../checkpoint/dtype.js";
import { entryOf } from "../columns.js";
import { type DriverName, driverNames, maxThreads } from "../envs.js";
import { errorOf } from "../errors.js";
import { addon } from "../native/load.js";
import type { AvailableMemory } from "../probe/memory.js";
import { driverOf } from "../transfer/drivers.js";
import { hugePageBytes } from "../units.js";
import { availableNow } from "./claims.js";
import { type LoadPlan, makeLoadPlan, type ShardPlanParts } from "./load-plan.js";
import { type MemoryAround, planMemory } from "./memory.js";
import {
  isAligned,
  type Placement,
  packedIsAligned,
  placeAligned,
  placeMapped,
  placementNames,
  placePacked,
  type ShardLayout,
} from "./placement.js";
import { groupByShard, mergeRanges, PieceBuilder } from "./ranges.js";
import { readShape } from "./read-shape.js";
import { type NameSelector, requireSelector, selectRows } from "./select.js";
import type { PlanSource } from "./source.js";

export interface PlanOptions {
  /** Tensors to load; default all. */
  readonly include?: NameSelector | undefined;
  /** Tensors to leave out of those. */
  readonly exclude?: NameSelector | undefined;
  /** Default `auto`, decided for each shard. */
  readonly placement?: Placement | undefined;
  /**
   * Multiple at which tensors should stand, a power of two up to 2 MiB. Default: each tensor's
   * element size; on a GPU 256.
   */
  readonly alignmentBytes?: number | undefined;
  /** Longest read in bytes that the driver may make, at least 4096; default 8 MiB. */
  readonly maxChunkBytes?: number | undefined;
  /** Where the tensors go. Default `host`. */
  readonly device?: DeviceName | undefined;
  /**
   * How the bytes will move: what that takes beside the tensors is counted, and `map` has places of
   * its own. Default `auto`.
   */
  readonly driver?: DriverName | undefined;
  /** Threads that will read. Default 16. */
  readonly threads?: number | undefined;
  /**
   * Memory of the plan's device to hold it against. Default: what the host has now; nothing for a
   * device, which is not asked.
   */
  readonly availableMemory?: AvailableMemory | undefined;
  /**
   * @internal Addresses congruent to file offsets modulo the page size, one piece per shard. A
   *   number is that size in bytes. Default: with the driver `map` alone.
   */
  readonly pageCongruent?: boolean | number | undefined;
  /** @internal Size of the host's pages in bytes. Default 4096. */
  readonly hostPageBytes?: number | undefined;
}

/** The allocation's base is a multiple of this, so no larger alignment can be promised. */
export const maxAlignmentBytes = hugePageBytes;
/** What CUDA's own allocator promises, and kernels that read with wide loads count on. */
const deviceAlignmentBytes = 256;
/** Threads that a load has at most unless it asks for more. */
export const maxDefaultThreads = 16;
/** Of the hosts that say something else the loader knows. */
const usualPageBytes = 4096;
/** Planning opens no device. */
const notAsked: AvailableMemory = Object.freeze({ bytes: null, limitedBy: "not asked" });
/**
 * Longest read unless asked otherwise: a buffered one of it runs at full speed, and the work is
 * still shared evenly.
 */
const defaultMaxChunkBytes = 8 * 2 ** 20;
/** Shortest limit that can be asked for: a page, below which every read is mostly overhead. */
const minMaxChunkBytes = 4096;

/**
 * Plans the load of a checkpoint, or of the tensors that are selected. Synchronous and pure:
 * nothing is allocated, no file of the checkpoint is touched.
 * @throws ERR_PLAN_TENSOR_UNKNOWN, ERR_OPTION_INVALID, ERR_OPTION_UNKNOWN, ERR_OPTION_CONFLICT
 */
export function planLoad(source: PlanSource, options: PlanOptions = {}): LoadPlan {
  const steps = planSteps(source, options);
  for (;;) {
    const step = steps.next();
    if (step.done) return step.value;
  }
}

/**
 * @internal The same in steps of one shard each, between which a caller can let the event loop
 *   turn.
 */
export function* planSteps(source: PlanSource, options: PlanOptions = {}): Generator<void, LoadPlan, void> {
  if (source?.columns === undefined) throw optionInvalid("checkpoint", "one that openCheckpoint gave", source);
  const { placement, device, maxChunkBytes, alignmentBytes, driver, threads } = requirePlanOptions(options);
  const pageBytes = mappedPageBytes(options, placement);

  const { columns, shardColumns } = source;
  const rows = selectRows(source, options.include, options.exclude);
  const alignOfDtype = Uint32Array.from(dtypes, ({ alignBytes }) => (alignmentBytes === "element" ? alignBytes : alignmentBytes));
  const addressOffset = new Float64Array(rows.length);
  const pieces = new PieceBuilder();
  const placed: ShardPlanParts[] = [];
  const align = addon().directAlign(shardColumns.dioOffsetAlign, shardColumns.dioMemAlign);
  let allocationBytes = 0;
  for (const group of groupByShard(columns, rows)) {
    yield;
    const layout: ShardLayout = {
      columns,
      rows,
      group,
      ranges: mergeRanges(columns, rows, alignOfDtype, group),
      alignOfDtype,
      offsetAlign: entryOf(align.offset, group.shard),
      memoryAlign: entryOf(align.memory, group.shard),
      start: allocationBytes,
    };
    const pieceBegin = pieces.count;
    const packed = pageBytes !== undefined || placement === "packed" || (placement === "auto" && packedIsAligned(layout));
    if (pageBytes !== undefined) allocationBytes = placeMapped(layout, pageBytes, addressOffset, pieces);
    else allocationBytes = (packed ? placePacked : placeAligned)(layout, addressOffset, pieces);
    // Under `auto` and `aligned` the placement itself promises it.
    const promised = pageBytes === undefined && placement !== "packed";
    const shard = entryOf(source.shards, group.shard);
    placed.push({
      index: group.shard,
      file: shard.file,
      name: shard.name,
      placement: packed ? "packed" : "aligned",
      isAligned: () => promised || isAligned(layout, addressOffset),
      tensors: group.end - group.begin,
      bytes: layout.ranges.reduce((sum, range) => sum + range.length, 0),
      rangeCount: layout.ranges.length,
      pieceCount: pieces.count - pieceBegin,
      pieceBegin,
      readRanges: layout.ranges,
      selectedBegin: group.begin,
    });
  }

  yield;
  const pieceColumns = pieces.columns();
  const memory = memoryKindOf(device);
  const bytes = placed.reduce((sum, shard) => sum + shard.bytes, 0);
  const shape = readShape(pieceColumns, { ...shardColumns, memoryAlign: align.memory }, { threads, maxChunkBytes, memory });
  return makeLoadPlan({
    source,
    device,
    placement,
    alignmentBytes,
    shards: placed,
    totals: Object.freeze({
      tensors: rows.length,
      bytes,
      ranges: placed.reduce((sum, shard) => sum + shard.rangeCount, 0),
      pieces: pieces.count,
      allocationBytes,
      alignmentWasteBytes: allocationBytes - bytes,
    }),
    memory: planMemory(
      {
        device,
        allocationBytes,
        mapped: pageBytes !== undefined,
        pieces: pieces.count,
        bytes,
        maxChunkBytes,
        pageBytes: options.hostPageBytes ?? usualPageBytes,
        driver: driverOf(driver, memory).takes(shape),
      },
      memoryAround(options, device),
    ),
    columns: { rows, addressOffset, pieces: pieceColumns, shape },
  });
}

/** @internal Options that a load has as well. */
export const sharedOptionNames = [
  "include",
  "exclude",
  "placement",
  "alignmentBytes",
  "maxChunkBytes",
  "device",
  "driver",
  "threads",
] satisfies (keyof PlanOptions)[];

const planOptionNames = [...sharedOptionNames, "availableMemory", "pageCongruent", "hostPageBytes"] satisfies (keyof PlanOptions)[];

/**
 * @internal Checks options as far as that needs no checkpoint, and fills in defaults.
 * @throws ERR_OPTION_INVALID, ERR_OPTION_UNKNOWN
 */
export function requirePlanOptions(options: PlanOptions) {
  requireKnown("options", options, planOptionNames);
  const device = requireDeviceName("device", options.device ?? "host");
  requireSelector("include", options.include);
  requireSelector("exclude", options.exclude);
  const { alignmentBytes = device === "host" ? undefined : deviceAlignmentBytes } = options;
  return {
    placement: requireOneOf("placement", options.placement ?? "auto", placementNames),
    device,
    driver: requireOneOf("driver", options.driver ?? "auto", driverNames),
    threads: requireInteger("threads", options.threads ?? maxDefaultThreads, { min: 1, max: maxThreads }),
    maxChunkBytes: requireInteger("maxChunkBytes", options.maxChunkBytes ?? defaultMaxChunkBytes, { min: minMaxChunkBytes }),
    alignmentBytes:
      alignmentBytes === undefined ? ("element" as const) : requirePowerOfTwo("alignmentBytes", alignmentBytes, maxAlignmentBytes),
  };
}

/** A plan that is given the memory of the host is held against that alone. */
function memoryAround({ availableMemory }: PlanOptions, device: DeviceName): MemoryAround {
  if (device !== "host") return { device: availableMemory ?? notAsked, host: availableNow() };
  const host = availableMemory ?? availableNow();
  return { device: host, host };
}

function mappedPageBytes(options: PlanOptions, placement: Placement): number | undefined {
  const { pageCongruent = options.driver === "map" } = options;
  if (pageCongruent === false) return undefined;
  const other = placement === "aligned" ? "placement" : options.alignmentBytes !== undefined ? "alignmentBytes" : undefined;
  if (other !== undefined) {
    throw errorOf("ERR_OPTION_CONFLICT", `${other} cannot be chosen where files are mapped: their tensors stand as in the file`, {
      facts: { option: other },
    });
  }
  return pageCongruent === true ? addon().pageBytes() : pageCongruent;
}
