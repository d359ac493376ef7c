import type { VmmArena } from "../../arena/arena.js";
import { entryOf } from "../../columns.js";
import { hasCode } from "../../errors.js";
import type { NativeLiving } from "../../native/addon.js";
import { awaitNative } from "../../native/failure.js";
import { regionsOf } from "./descriptors.js";

/** What a region of a plugin's may span. */
export interface Spans {
  /** Several allocations side by side. */
  readonly allocations: boolean;
  /** Holes too, which freed allocations left. */
  readonly holes: boolean;
}

/**
 * How registered memory was cut into regions. `one-region`: all of it is one. `runs`: one for each
 * run of allocations side by side, because what was freed left holes. `allocations`: a run had to
 * be cut at its allocations. `pieces`: as the caller named them.
 */
export type RegionLayout = "one-region" | "runs" | "allocations" | "pieces";

export interface ArenaRegions {
  readonly address: BigUint64Array;
  /** Bytes. */
  readonly length: Float64Array;
  readonly layout: RegionLayout;
  /** Why these, in words. */
  readonly reason: string;
}

/** Allocations side by side: `[begin, end)` are rows of `live`, two entries each. */
interface Run {
  readonly begin: number;
  readonly end: number;
}

interface Range {
  readonly begin: bigint;
  readonly bytes: bigint;
}

/** Why holes that are not empty cannot be part of a region. */
const whyFull: Record<NativeLiving["holes"], string | undefined> = {
  empty: undefined,
  moving: "memory in them is still being allocated or given back",
  held: "memory in them was freed, and is still pinned",
};

/**
 * Cuts what is alive in an arena into as few regions as are legal. On the host a run of allocations
 * is one region. On a device each allocation is a physical handle of its own: a run of one is legal
 * everywhere; a run of several, or all from the first allocation to the last with the holes
 * between, is one region only where `spans` says so, and where the driver proves it by exporting it
 * as one dma-buf. Holes must be empty for that: nothing may be unmapped under a registration.
 * @param living at least one allocation
 * @param spans what whoever reads the memory can take as one region
 * @throws ERR_CUDA_NO_CONTEXT, ERR_TRANSFER_NO_THREAD: the driver could not be asked
 */
export async function cutRegions(arena: VmmArena, living: NativeLiving, spans: Spans, plugin: string): Promise<ArenaRegions> {
  const live = living.allocations;
  const runs = runsOf(live);
  const holes = runs.length === 1 ? [] : [`${runs.length} runs, for freed allocations left holes`];
  if (arena.memory === "host") {
    const reasons = ["any mapped range of the host's memory is one region", ...holes];
    return { ...regionsOf(live, true), layout: runs.length === 1 ? "one-region" : "runs", reason: reasons.join("; ") };
  }
  const reasons = new Set<string>();
  if (spans.holes && runs.length > 1) {
    const all = { begin: 0, end: live.length };
    const refusal = whyFull[living.holes] ?? (await whyCut(arena, rangeOf(live, all), spans.allocations, plugin));
    if (refusal === undefined) {
      const whole = regionsOf(BigUint64Array.from(wholeOf(live, all)), false);
      return { ...whole, layout: "one-region", reason: "the driver exports all allocations as one dma-buf, holes included" };
    }
    reasons.add(`the holes are left out: ${refusal}`);
  }
  const regions: bigint[] = [];
  let cut = false;
  let askedOfOne = false;
  for (const run of runs) {
    const allocations = (run.end - run.begin) / 2;
    if (allocations > 1) {
      const refusal = await whyCut(arena, rangeOf(live, run), spans.allocations, plugin);
      reasons.add(refusal ?? "the driver exports the allocations of a run as one dma-buf");
      cut ||= refusal !== undefined;
      regions.push(...(refusal === undefined ? wholeOf(live, run) : live.subarray(run.begin, run.end)));
      continue;
    }
    // Legal in any case: the driver's answer, asked for once, tells which way a network card has to
    // reach it.
    if (!askedOfOne) {
      askedOfOne = true;
      reasons.add("an allocation is one physical handle");
      const refusal = arena.nativeMemory ? await refusalOf(arena, rangeOf(live, run)) : undefined;
      if (refusal !== undefined) reasons.add(`not by dma-buf: ${refusal}`);
    }
    regions.push(...wholeOf(live, run));
  }
  const layout = cut ? "allocations" : regions.length === 2 ? "one-region" : "runs";
  return { ...regionsOf(BigUint64Array.from(regions), false), layout, reason: [...reasons, ...holes].join("; ") };
}

/** Why a range over several handles cannot be one region; undefined when it can. */
async function whyCut(arena: VmmArena, range: Range, spans: boolean, plugin: string): Promise<string | undefined> {
  if (!spans) return `each allocation is a physical handle, and a region of ${plugin} may not span several`;
  if (!arena.nativeMemory)
    return "each allocation is a physical handle, and the arena's backend cannot prove that a region may span several";
  return refusalOf(arena, range);
}

/**
 * The driver's own refusal to export the range as one dma-buf; undefined when it does, and closes
 * that again.
 */
async function refusalOf(arena: VmmArena, { begin, bytes }: Range): Promise<string | undefined> {
  try {
    await awaitNative(() => arena.native.proveOneRegion(begin, Number(bytes)));
    return undefined;
  } catch (thrown) {
    if (hasCode(thrown, "ERR_CUDA_REGION")) return thrown.message;
    throw thrown;
  }
}

function rangeOf(live: BigUint64Array, { begin, end }: Run): Range {
  const address = entryOf(live, begin);
  return { begin: address, bytes: entryOf(live, end - 2) + entryOf(live, end - 1) - address };
}

function wholeOf(live: BigUint64Array, run: Run): [address: bigint, bytes: bigint] {
  const { begin, bytes } = rangeOf(live, run);
  return [begin, bytes];
}

function runsOf(live: BigUint64Array): Run[] {
  const runs: Run[] = [];
  let begin = 0;
  for (let at = 2; at <= live.length; at += 2) {
    if (at < live.length && live[at] === entryOf(live, at - 2) + entryOf(live, at - 1)) continue;
    runs.push({ begin, end: at });
    begin = at;
  }
  return runs;
}
