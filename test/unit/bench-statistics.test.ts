import { describe, expect, it } from "vitest";
import { estimate, judge, median } from "../../bench/statistics.js";

describe("bench statistics", () => {
  it("takes the middle value, or the mean of the two", () => {
    expect(median([3, 1, 2])).toBe(2);
    expect(median([4, 1, 3, 2])).toBe(2.5);
    expect(() => median([])).toThrow("a median needs a value");
  });

  // Binomial tables: of 15 values the 4th least and greatest, of 6 the least and greatest, of 20
  // the 6th.
  it.each([
    [15, 4, 12, 0.9648],
    [6, 1, 6, 0.9688],
    [20, 6, 15, 0.9586],
    [5, 1, 5, 0.9375],
    [1, 1, 1, 0],
  ])("of %i values encloses the median by the order statistics %i and %i", (count, low, high, confidence) => {
    const result = estimate(Array.from({ length: count }, (_, i) => count - i));
    expect(result).toMatchObject({ low, high, count });
    expect(result.confidence).toBeCloseTo(confidence, 4);
  });

  it("calls a bound missed only when the whole interval misses it", () => {
    const pairs = { median: 0.95, low: 0.9, high: 1.01, confidence: 0.96, count: 15 };
    expect(judge(pairs, { atLeast: 0.95 })).toBe("reached");
    expect(judge(pairs, { atLeast: 1 })).toBe("within noise");
    expect(judge(pairs, { atLeast: 1.02 })).toBe("missed");
    expect(judge(pairs, { atMost: 0.92 })).toBe("within noise");
    expect(judge(pairs, { atMost: 0.89 })).toBe("missed");
  });
});
