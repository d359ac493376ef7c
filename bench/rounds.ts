import { setTimeout as sleep } from "node:timers/promises";
import { type CheckpointId, type PreparedCheckpoint, prepareCheckpoint } from "./checkpoints.js";
import type { Figures, Round, Row, Trial } from "./rows.js";
import { median } from "./statistics.js";
import { systemOf } from "./systems.js";
import { runTrial } from "./trial.js";

export interface RowResult {
  readonly id: string;
  readonly measuredAt: string;
  /** 1 for a real measurement. */
  readonly scale: number;
  readonly rounds: readonly Round[];
  /** Trials without primed memory, after idling; by key. */
  readonly unprimed: Readonly<Record<string, readonly Figures[]>>;
  /** Why a system has no figures, or left after the first rounds; by key. */
  readonly left: Readonly<Record<string, string>>;
  readonly bestPeer: string | undefined;
}

export interface Measuring {
  readonly rounds: number;
  /** After these, peers far from the best leave. */
  readonly screeningRounds: number;
  readonly unprimedRounds: number;
  readonly idleSeconds: number;
  readonly scale: number;
  /** Why a system cannot run here, if it cannot. */
  readonly whyNot: (trial: Trial) => string | undefined;
  readonly say: (text: string) => void;
}

/**
 * A peer slower than the best by this factor in the first rounds leaves the row; its figures so far
 * are shown.
 */
const farFromBest = 1.15;

/**
 * Measures one row: in each round every system once, in turn, starting with another one each time,
 * so that a drift of the machine meets all alike. Bytes are compared in the first round.
 */
export async function measureRow(row: Row, measuring: Measuring): Promise<RowResult> {
  const checkpoints = new Map<CheckpointId, PreparedCheckpoint>();
  for (const { checkpoint } of row.trials) {
    if (checkpoint !== undefined && !checkpoints.has(checkpoint))
      checkpoints.set(checkpoint, await prepareCheckpoint(checkpoint, measuring.scale));
  }
  const at = (trial: Trial) => (trial.checkpoint === undefined ? undefined : checkpoints.get(trial.checkpoint));
  const left: Record<string, string> = {};
  for (const trial of row.trials) {
    const reason = measuring.whyNot(trial);
    if (reason !== undefined) left[trial.key] = reason;
  }
  const rounds: Round[] = [];
  const count = Math.min(measuring.rounds, row.maxRounds ?? measuring.rounds);
  for (let n = 0; n < count; n++) {
    const here = row.trials.filter(({ key }) => left[key] === undefined);
    const round: Record<string, Figures> = {};
    for (const trial of [...here.slice(n % here.length), ...here.slice(0, n % here.length)]) {
      try {
        round[trial.key] = await runTrial(trial, { checkpoint: at(trial), primed: true, compare: n === 0 });
      } catch (thrown) {
        left[trial.key] = thrown instanceof Error ? thrown.message : String(thrown);
        measuring.say(`  ${trial.key} leaves: ${left[trial.key]}`);
      }
    }
    rounds.push(round);
    measuring.say(`  round ${n + 1} of ${count}: ${describe(round, row)}`);
    if (n + 1 === measuring.screeningRounds) Object.assign(left, slowPeers(row, rounds));
  }
  const bestPeer = bestPeerOf(row, rounds, left);
  const unprimed = row.unprimed ? await measureUnprimed(row, bestPeer, left, at, measuring) : {};
  return { id: row.id, measuredAt: new Date().toISOString(), scale: measuring.scale, rounds, unprimed, left, bestPeer };
}

/** Key of the peer with the least median of seconds, of those that stayed to the end. */
function bestPeerOf(row: Row, rounds: readonly Round[], left: Readonly<Record<string, string>>): string | undefined {
  const medians = peerMedians(row, rounds).filter(([key]) => left[key] === undefined);
  return medians.sort(([, a], [, b]) => a - b)[0]?.[0];
}

function peerMedians(row: Row, rounds: readonly Round[]): [string, number][] {
  return row.trials
    .filter(({ system }) => systemOf(system).role === "peer")
    .map(({ key }): [string, number[]] => [key, secondsOf(key, rounds)])
    .filter(([, seconds]) => seconds.length > 0)
    .map(([key, seconds]) => [key, median(seconds)]);
}

function secondsOf(key: string, rounds: readonly Round[]): number[] {
  return rounds.map((round) => round[key]?.seconds).filter((seconds) => seconds !== undefined);
}

function slowPeers(row: Row, rounds: readonly Round[]): Record<string, string> {
  // Rows of times name their peers on purpose; only the wide field of loaders is narrowed.
  if (row.shown !== "throughput") return {};
  const medians = peerMedians(row, rounds);
  const best = Math.min(...medians.map(([, seconds]) => seconds));
  const slow = medians.filter(([, seconds]) => seconds > farFromBest * best);
  return Object.fromEntries(
    slow.map(([key]) => [key, `measured in ${rounds.length} rounds only: more than ${farFromBest} times the best peer's time`]),
  );
}

async function measureUnprimed(
  row: Row,
  bestPeer: string | undefined,
  left: Readonly<Record<string, string>>,
  at: (trial: Trial) => PreparedCheckpoint | undefined,
  { unprimedRounds, idleSeconds, say }: Measuring,
): Promise<Record<string, Figures[]>> {
  const results: Record<string, Figures[]> = {};
  const here = row.trials.filter(
    ({ key, system }) => left[key] === undefined && (key === row.subject || key === bestPeer || systemOf(system).role === "limit"),
  );
  for (let n = 0; n < unprimedRounds; n++) {
    for (const trial of here) {
      await sleep(idleSeconds * 1000);
      const figures = await runTrial(trial, { checkpoint: at(trial), primed: false, compare: false });
      results[trial.key] = [...(results[trial.key] ?? []), figures];
      say(`  unprimed ${n + 1} of ${unprimedRounds}: ${trial.key} ${figures.seconds?.toFixed(3)} s`);
    }
  }
  return results;
}

function describe(round: Round, row: Row): string {
  const figureOf = ({ key, figure }: Trial) => shortly(round[key]?.[figure ?? row.figure ?? "seconds"]);
  return row.trials
    .filter(({ key }) => round[key] !== undefined)
    .map((trial) => `${trial.key} ${figureOf(trial)}`)
    .join(", ");
}

function shortly(value: number | undefined): string {
  return value === undefined ? "?" : Number(value.toPrecision(3)).toString();
}
