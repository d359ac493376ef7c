/** Median of at least one number. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  const [low, high] = [sorted[(sorted.length - 1) >> 1], sorted[middle]];
  if (low === undefined || high === undefined) throw new Error("a median needs a value");
  return (low + high) / 2;
}

/**
 * Median, and an interval that holds the true median with at least `confidence` (exact, from order
 * statistics of the binomial distribution).
 */
export interface Estimate {
  readonly median: number;
  readonly low: number;
  readonly high: number;
  /**
   * 0.95 or more; less where there are too few values for that: the interval then is their whole
   * span.
   */
  readonly confidence: number;
  readonly count: number;
}

/**
 * The k-th least and k-th greatest of n values enclose the median with probability 1 - 2 P(B < k),
 * B binomial (n, 1/2): no assumption on the distribution, no random numbers. The greatest k that
 * keeps 95 % is taken.
 */
export function estimate(values: readonly number[]): Estimate {
  const sorted = [...values].sort((a, b) => a - b);
  const count = sorted.length;
  let probability = 0.5 ** count;
  let below = probability;
  let k = 1;
  for (let next = 1; next < count / 2; next++) {
    probability = (probability * (count - next + 1)) / next;
    if (2 * (below + probability) > 0.05) break;
    below += probability;
    k = next + 1;
  }
  const [low, high] = [sorted[k - 1], sorted[count - k]];
  if (low === undefined || high === undefined) throw new Error("an estimate needs a value");
  return { median: median(sorted), low, high, confidence: 1 - 2 * below, count };
}

/** A bound on a figure. */
export type Bound = { readonly atLeast: number } | { readonly atMost: number };
export type Verdict = "reached" | "within noise" | "missed";

/** A bound is missed only when the whole interval misses it, reached when the median keeps it. */
export function judge({ median: middle, low, high }: Estimate, bound: Bound): Verdict {
  if ("atLeast" in bound) return middle >= bound.atLeast ? "reached" : high >= bound.atLeast ? "within noise" : "missed";
  return middle <= bound.atMost ? "reached" : low <= bound.atMost ? "within noise" : "missed";
}
