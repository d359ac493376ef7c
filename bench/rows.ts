import type { CheckpointId } from "./checkpoints.js";
import type { Bound } from "./statistics.js";
import { type SystemId, systemOf } from "./systems.js";

/** State of the page cache before a trial. */
export type CacheState = "warm" | "cold";

/**
 * One system at work in a row. Rows that load two checkpoints have two trials of the same system.
 */
export interface Trial {
  /** Unique in its row. */
  readonly key: string;
  readonly system: SystemId;
  readonly title: string;
  readonly checkpoint?: CheckpointId;
  readonly state?: CacheState;
  /** Figure that this trial is shown by, where it is not the row's. */
  readonly figure?: string;
}

/** The figures of one trial, all numbers; every trial has `seconds` and `bytes`. */
export type Figures = Readonly<Record<string, number>>;
/** What the trials of one round gave, by key; a trial that left the row or failed is missing. */
export type Round = Readonly<Record<string, Figures>>;

export interface Target {
  readonly text: string;
  /**
   * The figure to be judged, of one round; undefined where a trial is missing. `bestPeer`: key of
   * the peer with the least median of seconds.
   */
  readonly value: (round: Round, bestPeer: string | undefined) => number | undefined;
  readonly unit: "ratio" | "ms" | "MiB" | "us";
  /** Absent: shown only. */
  readonly bound?: Bound;
}

export interface Row {
  readonly id: string;
  readonly title: string;
  readonly trials: readonly Trial[];
  readonly targets: readonly Target[];
  /** What a trial of the row is compared by; default `seconds`. */
  readonly figure?: string;
  /** Key of the trial that the row is about, and whether its unprimed figure is shown too. */
  readonly subject: string;
  readonly unprimed: boolean;
  /** How figures are shown: throughput of a load, or a time. */
  readonly shown: "throughput" | "ms" | "us" | "peak" | "delay";
  /** Most rounds; for figures that hardly vary. */
  readonly maxRounds?: number;
}

const copyingPeers = {
  warm: ["safetensors-pread", "safetensors-numpy", "fastsafetensors-buffered", "runai-buffered", "nixl-buffered"],
  cold: ["safetensors-pread", "fastsafetensors-buffered", "fastsafetensors-direct", "runai-direct", "nixl-buffered", "nixl-direct"],
} as const satisfies Record<CacheState, readonly SystemId[]>;

function trial(system: SystemId, checkpoint?: CheckpointId, state?: CacheState): Trial {
  return { key: system, system, title: systemOf(system).title, ...(checkpoint && { checkpoint }), ...(state && { state }) };
}

/** `figure` of trial `a` over that of trial `b` in one round. */
function ratio(round: Round, [a, figureA]: readonly [string | undefined, string], [b, figureB]: readonly [string | undefined, string]) {
  const [top, bottom] = [figureOf(round, a, figureA), figureOf(round, b, figureB)];
  return top === undefined || bottom === undefined ? undefined : top / bottom;
}

function figureOf(round: Round, key: string | undefined, figure: string): number | undefined {
  return key === undefined ? undefined : round[key]?.[figure];
}

function scaled(value: number | undefined, factor: number): number | undefined {
  return value === undefined ? undefined : value * factor;
}

const seconds = "seconds";
const noPeerFaster: Target = {
  text: "speed over the best copying peer",
  value: (round, bestPeer) => ratio(round, [bestPeer, seconds], ["mx", seconds]),
  unit: "ratio",
  bound: { atLeast: 1 },
};

function loadRow(id: string, checkpoint: CheckpointId, state: CacheState, title: string): Row {
  const limit = state === "warm" ? "limit-warm" : "limit-cold";
  const own: SystemId[] = state === "warm" ? ["mx", "mx-pread"] : ["mx", "mx-io_uring"];
  return {
    id,
    title,
    trials: [...own, limit, ...copyingPeers[state]].map((system) => trial(system as SystemId, checkpoint, state)),
    targets: [
      {
        text: "speed over the machine's limit",
        value: (round) => ratio(round, [limit, seconds], ["mx", seconds]),
        unit: "ratio",
        bound: { atLeast: state === "warm" ? 0.9 : 0.95 },
      },
      noPeerFaster,
    ],
    subject: "mx",
    unprimed: true,
    shown: "throughput",
  };
}

const small = {
  key: "mx-small",
  system: "mx",
  title: "modelexpress-client, 3,050 tensors",
  checkpoint: "many-small",
  state: "warm",
} as const;
const few = { key: "mx-few", system: "mx", title: "modelexpress-client, 8 tensors", checkpoint: "few-small", state: "warm" } as const;

/**
 * How much longer the small tensors take as a whole, beyond the transfer of as many bytes in 8
 * tensors and the 10 % granted to it, in ms.
 */
function excessMs(round: Round): number | undefined {
  const [whole, transfer] = [figureOf(round, small.key, seconds), figureOf(round, few.key, "transferSeconds")];
  return whole === undefined || transfer === undefined ? undefined : (whole - 1.1 * transfer) * 1000;
}

function memoryTarget(key: string, text: string): Target {
  return {
    text,
    value: (round) => {
      const [peak, bytes, empty] = [
        figureOf(round, key, "peakBytes"),
        figureOf(round, key, "bytes"),
        figureOf(round, "node-empty", "peakBytes"),
      ];
      return peak === undefined || bytes === undefined || empty === undefined ? undefined : (peak - bytes - empty) / 2 ** 20;
    },
    unit: "MiB",
    bound: { atMost: 64 },
  };
}

const inMs = (value: number | undefined) => (value === undefined ? undefined : value * 1000);

const delay = (key: string, figure: string, text: string, bound?: Bound): Target => ({
  text,
  value: (round) => figureOf(round, key, figure),
  unit: "ms",
  ...(bound && { bound }),
});

/** The table of the benchmark: every claim of speed has its row. */
export const rows: readonly Row[] = [
  loadRow("warm-llama", "llama", "warm", "Warm: 2 GiB in 4 shards (llama)"),
  loadRow("warm-few-large", "few-large", "warm", "Warm: 1 GiB in 8 tensors"),
  loadRow("cold-llama", "llama", "cold", "Cold: 2 GiB in 4 shards (llama)"),
  loadRow("cold-few-large", "few-large", "cold", "Cold: 1 GiB in 8 tensors"),
  {
    id: "many-small",
    title: "Warm: 256 MiB in 3,050 small tensors",
    trials: [small, few, ...(["limit-warm", ...copyingPeers.warm] as const).map((system) => trial(system, "many-small", "warm"))],
    targets: [
      {
        text: "transfer over that of equal bytes in 8 tensors",
        value: (round) => ratio(round, [small.key, "transferSeconds"], [few.key, "transferSeconds"]),
        unit: "ratio",
        bound: { atMost: 1.1 },
      },
      { text: "whole load beyond 1.1 times the transfer of equal bytes in 8 tensors", value: excessMs, unit: "ms", bound: { atMost: 8 } },
      {
        text: "speed over the best copying peer",
        value: (round, bestPeer) => ratio(round, [bestPeer, seconds], [small.key, seconds]),
        unit: "ratio",
      },
    ],
    subject: small.key,
    unprimed: false,
    shown: "throughput",
  },
  {
    id: "map",
    title: "Mapping, warm: 3,050 tensors",
    trials: (["mx-map", "safetensors-lazy", "safetensors-touched"] as const).map((system) => trial(system, "many-small", "warm")),
    targets: [
      {
        text: "time of a load, every tensor then reachable by name, over safetensors' lazy load_file",
        value: (round) => ratio(round, ["mx-map", seconds], ["safetensors-lazy", seconds]),
        unit: "ratio",
        bound: { atMost: 0.1 },
      },
      {
        text: "the same, with the objects of all tensors made at once",
        value: (round) => {
          const lazy = figureOf(round, "safetensors-lazy", seconds);
          const [load, objects] = [figureOf(round, "mx-map", seconds), figureOf(round, "mx-map", "objectsSeconds")];
          return lazy === undefined || load === undefined || objects === undefined ? undefined : (load + objects) / lazy;
        },
        unit: "ratio",
      },
      {
        text: "the same until every page was touched too, over the same with safetensors",
        value: (round) => {
          const theirs = figureOf(round, "safetensors-touched", seconds);
          const ours = ["seconds", "objectsSeconds", "touchSeconds"].map((figure) => figureOf(round, "mx-map", figure) ?? Number.NaN);
          return theirs === undefined ? undefined : ours.reduce((sum, value) => sum + value, 0) / theirs;
        },
        unit: "ratio",
        bound: { atMost: 1 },
      },
    ],
    subject: "mx-map",
    unprimed: false,
    shown: "ms",
  },
  {
    id: "memory",
    title: "Peak memory",
    trials: [
      { key: "warm", system: "mx", title: "modelexpress-client, 2 GiB, warm", checkpoint: "llama", state: "warm" },
      { key: "cold", system: "mx", title: "modelexpress-client, 2 GiB, cold", checkpoint: "llama", state: "cold" },
      { key: "many-small", system: "mx", title: "modelexpress-client, 3,050 tensors, warm", checkpoint: "many-small", state: "warm" },
      trial("node-empty"),
    ],
    targets: [
      memoryTarget("warm", "beyond checkpoint and empty Node process, 2 GiB warm"),
      memoryTarget("cold", "beyond checkpoint and empty Node process, 2 GiB cold"),
      memoryTarget("many-small", "beyond checkpoint and empty Node process, 3,050 tensors"),
    ],
    figure: "peakBytes",
    subject: "warm",
    unprimed: false,
    shown: "peak",
    maxRounds: 7,
  },
  {
    id: "event-loop",
    title: "Event loop while loading",
    trials: [
      { key: "llama", system: "mx-event-loop", title: "2 GiB in 4 shards, warm, both cores reading", checkpoint: "llama", state: "warm" },
      { key: "many-shards", system: "mx-event-loop", title: "92,000 tensors in 163 shards", checkpoint: "many-shards", state: "warm" },
    ],
    targets: [
      delay("llama", "p99Ms", "99th percentile of the delay, 2 GiB in 4 shards", { atMost: 20 }),
      delay("llama", "maxMs", "greatest delay, 2 GiB in 4 shards"),
      delay("many-shards", "p99Ms", "99th percentile of the delay, 92,000 tensors", { atMost: 20 }),
      delay("many-shards", "openMaxMs", "greatest delay while opening 92,000 tensors", { atMost: 20 }),
      delay("many-shards", "maxMs", "greatest delay of whole loads, 92,000 tensors"),
      delay("llama", "idleP99Ms", "99th percentile while idle"),
    ],
    figure: "p99Ms",
    subject: "llama",
    unprimed: false,
    shown: "delay",
  },
  {
    id: "spawns",
    title: "Child processes started during a load, cold: 1 GiB in 8 tensors",
    trials: (["mx-alone", "mx-spawns"] as const).map((system) => trial(system, "few-large", "cold")),
    targets: [
      delay("mx-spawns", "maxMs", "greatest delay of the event loop while 50 processes are started", { atMost: 20 }),
      {
        text: "time of the load over that without processes",
        value: (round) => ratio(round, ["mx-spawns", seconds], ["mx-alone", seconds]),
        unit: "ratio",
        bound: { atMost: 1.1 },
      },
    ],
    subject: "mx-spawns",
    unprimed: false,
    shown: "ms",
  },
  {
    id: "again",
    title: "Loaded, closed and 10 s later loaded again, warm: 1 GiB in 8 tensors",
    trials: (["mx-again-kept", "mx-again", "mx"] as const).map((system) => trial(system, "few-large", "warm")),
    targets: [
      {
        text: "speed out of kept pages over that of a load into primed memory",
        value: (round) => ratio(round, ["mx", seconds], ["mx-again-kept", seconds]),
        unit: "ratio",
        bound: { atLeast: 0.95 },
      },
      {
        text: "speed out of kept pages over that without",
        value: (round) => ratio(round, ["mx-again", seconds], ["mx-again-kept", seconds]),
        unit: "ratio",
      },
    ],
    subject: "mx-again-kept",
    unprimed: false,
    shown: "throughput",
    maxRounds: 7,
  },
  {
    id: "open",
    title: "Opening: 3,050 tensors, validated whole",
    trials: (["mx-open", "safetensors-open"] as const).map((system) => trial(system, "many-small", "warm")),
    targets: [
      {
        text: "time of an opening over safetensors' safe_open with shape and dtype of every tensor",
        value: (round) => ratio(round, ["mx-open", seconds], ["safetensors-open", seconds]),
        unit: "ratio",
        bound: { atMost: 1 },
      },
      {
        text: "the same, shape and dtype of every tensor read in JavaScript",
        value: (round) => ratio(round, ["mx-open", "walkSeconds"], ["safetensors-open", seconds]),
        unit: "ratio",
      },
    ],
    subject: "mx-open",
    unprimed: false,
    shown: "ms",
  },
  {
    id: "import",
    title: "Import of the package",
    trials: [trial("mx-import")],
    targets: [
      {
        text: "time of the first import",
        value: (round) => inMs(figureOf(round, "mx-import", seconds)),
        unit: "ms",
        bound: { atMost: 40 },
      },
    ],
    subject: "mx-import",
    unprimed: false,
    shown: "ms",
  },
  {
    id: "arena",
    title: "Arena: malloc and free over an empty backend",
    trials: [
      { ...trial("arena-native"), figure: "oneThread.nsPerPair" },
      { ...trial("arena-typescript"), title: "modelexpress-client arena, TypeScript over a TypeScript backend" },
      { ...trial("arena-original"), title: "original arena (modelexpress), Python over a Python backend" },
    ],
    targets: [
      {
        text: "native, one thread",
        value: (round) => scaled(figureOf(round, "arena-native", "oneThread.nsPerPair"), 1e-3),
        unit: "us",
        bound: { atMost: 0.15 },
      },
      {
        text: "native, each of two threads at once",
        value: (round) => scaled(figureOf(round, "arena-native", "twoThreads.nsPerPair"), 1e-3),
        unit: "us",
      },
      {
        text: "TypeScript over a TypeScript backend, over the original in Python over a Python backend",
        value: (round) => ratio(round, ["arena-typescript", "nsPerPair"], ["arena-original", "nsPerPair"]),
        unit: "ratio",
        bound: { atMost: 1 },
      },
    ],
    figure: "nsPerPair",
    subject: "arena-typescript",
    unprimed: false,
    shown: "us",
  },
  {
    id: "arena-c",
    title: "Arena: mx_malloc and mx_free from C threads over an empty backend",
    trials: [
      { ...trial("arena-c"), figure: "oneThread.nsPerPair" },
      { ...trial("arena-c-original"), figure: "oneThread.nsPerPair" },
    ],
    targets: [
      {
        text: "pairs a second over the original's, one thread",
        value: (round) => ratio(round, ["arena-c", "oneThread.pairsPerSecond"], ["arena-c-original", "oneThread.pairsPerSecond"]),
        unit: "ratio",
        bound: { atLeast: 4 },
      },
      {
        text: "the same, two threads",
        value: (round) => ratio(round, ["arena-c", "twoThreads.pairsPerSecond"], ["arena-c-original", "twoThreads.pairsPerSecond"]),
        unit: "ratio",
        bound: { atLeast: 4 },
      },
    ],
    figure: "oneThread.nsPerPair",
    subject: "arena-c",
    unprimed: false,
    shown: "us",
  },
  {
    id: "registration",
    title: "Registering 3,000 tensors with NIXL, UCX, host memory",
    trials: (["register-arena", "register-list", "register-each"] as const).map((system) => trial(system)),
    targets: [
      {
        text: "one by one, over the arena's one registration",
        value: (round) => ratio(round, ["register-each", seconds], ["register-arena", seconds]),
        unit: "ratio",
        bound: { atLeast: 50 },
      },
      {
        text: "as one list, over the arena's one registration",
        value: (round) => ratio(round, ["register-list", seconds], ["register-arena", seconds]),
        unit: "ratio",
        bound: { atLeast: 20 },
      },
    ],
    subject: "register-arena",
    unprimed: false,
    shown: "ms",
  },
  {
    id: "nixl",
    title: "Through NIXL, warm: 1 GiB in 8 tensors, GDS_MT over a stand-in for cuFile",
    trials: (["mx-gds", "limit-warm"] as const).map((system) => trial(system, "few-large", "warm")),
    targets: [
      {
        text: "time over plain reads of the same chunks by as many threads",
        value: (round) => ratio(round, ["mx-gds", seconds], ["limit-warm", seconds]),
        unit: "ratio",
        bound: { atMost: 1.1 },
      },
    ],
    subject: "mx-gds",
    unprimed: false,
    shown: "ms",
  },
];
