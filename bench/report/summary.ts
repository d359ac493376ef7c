import type { RowResult } from "../rounds.js";
import type { Figures, Row, Target } from "../rows.js";
import { type Estimate, estimate, judge, median, type Verdict } from "../statistics.js";
import { systemOf } from "../systems.js";

/** One system of a row, over all its rounds. */
export interface SystemSummary {
  readonly key: string;
  readonly title: string;
  readonly role: "own" | "peer" | "limit" | "reference";
  /** Median and interval of the figure that the row is about. */
  readonly figure: Estimate | undefined;
  /** Bytes of the checkpoint, where the figure is a time in seconds. */
  readonly bytes: number;
  readonly peakBytes: number | undefined;
  readonly unprimed: number | undefined;
  /** Why it has no figures, or few. */
  readonly left: string | undefined;
}

export interface TargetSummary {
  readonly target: Target;
  readonly estimate: Estimate | undefined;
  readonly verdict: Verdict | "shown" | "too few rounds" | "not measured";
}

export interface RowSummary {
  readonly row: Row;
  readonly result: RowResult;
  readonly systems: readonly SystemSummary[];
  readonly targets: readonly TargetSummary[];
}

export function summarize(row: Row, result: RowResult): RowSummary {
  const of = (key: string, name: string): number[] =>
    result.rounds.map((round) => round[key]?.[name]).filter((value): value is number => value !== undefined);
  const systems = row.trials.map((trial): SystemSummary => {
    const figureName = trial.figure ?? row.figure ?? "seconds";
    const values = of(trial.key, figureName);
    const peaks = of(trial.key, "peakBytes");
    const unprimed = (result.unprimed[trial.key] ?? [])
      .map((figures: Figures) => figures[figureName])
      .filter((value) => value !== undefined);
    return {
      key: trial.key,
      title: trial.title,
      role: systemOf(trial.system).role,
      figure: values.length > 0 ? estimate(values) : undefined,
      bytes: of(trial.key, "bytes")[0] ?? 0,
      peakBytes: peaks.length > 0 ? median(peaks) : undefined,
      unprimed: unprimed.length > 0 ? median(unprimed) : undefined,
      left: result.left[trial.key],
    };
  });
  const targets = row.targets.map((target): TargetSummary => {
    const values = result.rounds
      .map((round) => target.value(round, result.bestPeer))
      .filter((value) => value !== undefined && !Number.isNaN(value));
    if (values.length === 0) return { target, estimate: undefined, verdict: "not measured" };
    const pairs = estimate(values as number[]);
    if (target.bound === undefined) return { target, estimate: pairs, verdict: "shown" };
    return { target, estimate: pairs, verdict: pairs.confidence < 0.95 ? "too few rounds" : judge(pairs, target.bound) };
  });
  return { row, result, systems, targets };
}

/** True when a target of the row was missed by its whole interval. */
export function missed({ targets }: RowSummary): boolean {
  return targets.some(({ verdict }) => verdict === "missed");
}
