import type { DeviceName } from "../arena/device-name.js";
import { entryOf } from "../columns.js";
import { errorOf } from "../errors.js";
import { withShortForm } from "../inspection.js";
import type { ReadShape } from "../transfer/driver-bytes.js";
import { formatBytes } from "../units.js";
import type { PlanMemory } from "./memory.js";
import type { Placement } from "./placement.js";
import type { PieceColumns } from "./ranges.js";
import type { PlanSource } from "./source.js";

/**
 * What to read from where to where: frozen, made before anything is allocated. `JSON.stringify`
 * prints it whole.
 */
export interface LoadPlan {
  readonly checkpoint: {
    readonly path: string;
    readonly shards: number;
    readonly tensors: number;
  };
  /** Where the tensors go. */
  readonly device: DeviceName;
  readonly placement: Placement;
  /** Alignment of every tensor in bytes, or `"element"` where each has that of its own elements. */
  readonly alignmentBytes: number | "element";
  /** Shards that hold a selected tensor, in the order of the checkpoint. */
  readonly shards: readonly ShardPlan[];
  readonly totals: PlanTotals;
  readonly memory: PlanMemory;
  /** Where a selected tensor is and where it goes; undefined for a tensor that is not selected. */
  tensorPlacement(name: string): TensorPlacement | undefined;
  toJSON(): PlanJson;
}

export interface PlanTotals {
  readonly tensors: number;
  /** Bytes of the selected tensors. */
  readonly bytes: number;
  readonly ranges: number;
  readonly pieces: number;
  /** Bytes of the one allocation that holds them all; its base is a multiple of 2 MiB. */
  readonly allocationBytes: number;
  /** Bytes of the allocation that belong to no tensor. */
  readonly alignmentWasteBytes: number;
}

export interface ShardPlan {
  /** Position in the checkpoint's `shards`. */
  readonly index: number;
  readonly file: string;
  readonly name: string;
  readonly placement: Exclude<Placement, "auto">;
  /**
   * True when every selected tensor stands at a multiple of its alignment; found out at the first
   * access.
   */
  readonly aligned: boolean;
  readonly tensors: number;
  readonly bytes: number;
  readonly rangeCount: number;
  readonly pieceCount: number;
  /** What is read of the file, neighbours merged; made at the first access. */
  readonly ranges: readonly PlanRange[];
  /**
   * The ranges again, parted where neighbours in the file are none in memory, each part with its
   * place; made at the first access.
   */
  readonly pieces: readonly PlanPiece[];
}

/** A contiguous range of a shard's file. */
export interface PlanRange {
  readonly offset: number;
  readonly length: number;
}

/** Bytes that are contiguous both in the file and in memory: one tensor or several. */
export interface PlanPiece extends PlanRange {
  /** Bytes from the base of the allocation. */
  readonly addressOffset: number;
}

export interface TensorPlacement {
  readonly name: string;
  /** Position in the checkpoint's `shards`. */
  readonly shard: number;
  /** File offset in bytes. */
  readonly offset: number;
  readonly byteLength: number;
  /** Bytes from the base of the allocation. */
  readonly addressOffset: number;
}

/** A plan as plain data, with everything it holds. */
export interface PlanJson extends Omit<LoadPlan, "shards" | "tensorPlacement" | "toJSON"> {
  readonly shards: readonly ShardPlanJson[];
}

export interface ShardPlanJson extends ShardPlan {
  readonly placements: readonly TensorPlacement[];
}

/** @internal Flat columns of a plan for the loader. */
export interface PlanColumns {
  /** Checkpoint row of each selected tensor, ascending. */
  readonly rows: Uint32Array;
  /** Bytes from the base of the allocation, of each selected tensor. */
  readonly addressOffset: Float64Array;
  /** What is read, sorted by (shard, offset). Page-congruent plans: one piece per shard. */
  readonly pieces: PieceColumns;
  /** How the pieces are read. */
  readonly shape: ReadShape;
}

/** Typed arrays cannot be frozen, so they lie beside the plan. */
const columnsOf = new WeakMap<LoadPlan, PlanColumns>();

/** @internal The columns of a plan made by `planLoad`. Not to be written to. */
export function planColumns(plan: LoadPlan): PlanColumns {
  const columns = columnsOf.get(plan);
  if (columns === undefined) throw errorOf("ERR_OPTION_INVALID", "plan must be one that planLoad made", { facts: { option: "plan" } });
  return columns;
}

/**
 * @internal What a shard's plan is made from; `pieceBegin` and `selectedBegin` point into the
 *   columns.
 */
export interface ShardPlanParts extends Omit<ShardPlan, "aligned" | "ranges" | "pieces"> {
  readonly isAligned: () => boolean;
  readonly readRanges: readonly PlanRange[];
  readonly pieceBegin: number;
  readonly selectedBegin: number;
}

/** @internal */
export interface LoadPlanParts extends Omit<LoadPlan, "checkpoint" | "shards" | "tensorPlacement" | "toJSON"> {
  readonly source: PlanSource;
  readonly shards: readonly ShardPlanParts[];
  readonly columns: PlanColumns;
}

/** @internal Puts the frozen plan together. */
export function makeLoadPlan(parts: LoadPlanParts): LoadPlan {
  const { source, columns, shards, ...plain } = parts;
  const placementAt = (at: number): TensorPlacement => {
    const row = entryOf(columns.rows, at);
    return Object.freeze({
      name: source.nameOf(row),
      shard: entryOf(source.columns.shard, row),
      offset: entryOf(source.columns.offset, row),
      byteLength: entryOf(source.columns.length, row),
      addressOffset: entryOf(columns.addressOffset, at),
    });
  };
  const shardPlans = Object.freeze(shards.map((shard) => makeShardPlan(shard, columns)));
  const checkpoint = Object.freeze({ path: source.path, shards: source.shards.length, tensors: source.columns.count });
  const plan: LoadPlan = {
    checkpoint,
    ...plain,
    shards: shardPlans,
    tensorPlacement(name: string) {
      const at = indexOfRow(columns.rows, source.rowOf(name));
      return at === -1 ? undefined : placementAt(at);
    },
    toJSON(): PlanJson {
      const shardsJson = shards.map((shard, position): ShardPlanJson => {
        const { ranges, pieces, ...rest } = shardPlans[position] ?? makeShardPlan(shard, columns);
        const placements = Array.from({ length: shard.tensors }, (_, nth) => placementAt(shard.selectedBegin + nth));
        return { ...rest, ranges, pieces, placements };
      });
      return { checkpoint, ...plain, shards: shardsJson };
    },
  };
  Object.freeze(withShortForm(plan, "LoadPlan", shortForm));
  columnsOf.set(plan, columns);
  return plan;
}

function shortForm({ checkpoint, device, placement, shards, totals, memory }: LoadPlan): object {
  const { tensors, bytes, ranges, pieces, allocationBytes } = totals;
  return {
    path: checkpoint.path,
    device,
    placement,
    shards: shards.length,
    tensors,
    bytes: formatBytes(bytes),
    ranges,
    pieces,
    allocation: formatBytes(allocationBytes),
    fits: memory.fits,
  };
}

function makeShardPlan(parts: ShardPlanParts, { pieces }: PlanColumns): ShardPlan {
  const { readRanges, pieceBegin, selectedBegin: _, isAligned, ...plain } = parts;
  let aligned: boolean | undefined;
  let rangeObjects: readonly PlanRange[] | undefined;
  let pieceObjects: readonly PlanPiece[] | undefined;
  return Object.freeze({
    ...plain,
    get aligned() {
      aligned ??= isAligned();
      return aligned;
    },
    get ranges() {
      rangeObjects ??= Object.freeze(readRanges.map(({ offset, length }) => Object.freeze({ offset, length })));
      return rangeObjects;
    },
    get pieces() {
      pieceObjects ??= Object.freeze(
        Array.from({ length: plain.pieceCount }, (_, nth) =>
          Object.freeze({
            offset: entryOf(pieces.offset, pieceBegin + nth),
            length: entryOf(pieces.length, pieceBegin + nth),
            addressOffset: entryOf(pieces.addressOffset, pieceBegin + nth),
          }),
        ),
      );
      return pieceObjects;
    },
  });
}

/** Position of a value in an ascending array, or -1. */
function indexOfRow(rows: Uint32Array, row: number): number {
  let begin = 0;
  let end = rows.length;
  while (begin < end) {
    const middle = (begin + end) >>> 1;
    if (entryOf(rows, middle) < row) begin = middle + 1;
    else end = middle;
  }
  return begin < rows.length && rows[begin] === row ? begin : -1;
}
