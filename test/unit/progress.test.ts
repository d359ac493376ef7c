import { describe, expect, it } from "vitest";
import { progressLine } from "../../src/cli/progress.js";
import { Rate } from "../../src/cli/rate.js";

const GIB = 2 ** 30;
const half = { bytes: 2 * GIB, totalBytes: 4 * GIB, bytesPerSecond: 5e8 };

describe("progressLine()", () => {
  it.each([
    [200, "loading ====================-------------------- 50%  2 GiB of 4 GiB  500 MB/s  5 s left"],
    [80, "loading =========--------- 50%  2 GiB of 4 GiB  500 MB/s  5 s left"],
    [60, "loading 50%  2 GiB of 4 GiB  500 MB/s  5 s left"],
    [40, "loading 50%  500 MB/s  5 s left"],
    [26, "loading 50%  5 s left"],
    [14, "loading 50%"],
    [8, "50%"],
    [3, "50"],
    [1, ""],
    [0, ""],
  ])("in %d columns", (columns, line) => {
    expect(progressLine("loading", half, columns)).toBe(line);
  });

  it("fits any width, whatever it tells", () => {
    for (const bytesPerSecond of [undefined, 1, 999e6, 1e13]) {
      for (let columns = 1; columns < 250; columns++) {
        const shown = { bytes: 1023 * 2 ** 40 - 1, totalBytes: 1023 * 2 ** 40, bytesPerSecond };
        expect(progressLine("timing, cold", shown, columns).length).toBeLessThan(columns);
      }
    }
  });

  it("tells no rate and no time before there is one, and long times roughly", () => {
    expect(progressLine("loading", { ...half, bytesPerSecond: undefined }, 60)).toBe("loading 50%  2 GiB of 4 GiB");
    expect(progressLine("x", { ...half, bytesPerSecond: 2 ** 20 }, 60)).toBe("x 50%  2 GiB of 4 GiB  1.05 MB/s  34 min 8 s left");
    expect(progressLine("x", { ...half, bytesPerSecond: 2 ** 17 }, 60)).toBe("x 50%  2 GiB of 4 GiB  131 kB/s  5 h left");
    expect(progressLine("x", { ...half, bytesPerSecond: 1 }, 60)).toBe("x 50%  2 GiB of 4 GiB  1 B/s  days left");
    expect(progressLine("x", { bytes: 0, totalBytes: 0, bytesPerSecond: undefined }, 60)).toBe("x 100%  0 B of 0 B");
  });
});

describe("Rate", () => {
  it("is that of the last five seconds", () => {
    const rate = new Rate();
    expect(rate.bytesPerSecond).toBeUndefined();
    rate.add(0, 1000);
    expect(rate.bytesPerSecond).toBeUndefined();
    rate.add(500, 1500);
    expect(rate.bytesPerSecond).toBe(1000);
    // Slow from then on: what came first does not count for ever.
    for (let second = 2; second <= 12; second++) rate.add(500 + second, second * 1000);
    expect(rate.bytesPerSecond).toBe(1);
  });

  it("goes by the last sample before that where samples are rare, and knows none where nothing comes", () => {
    const rate = new Rate();
    rate.add(0, 0);
    rate.add(100_000, 20_000);
    expect(rate.bytesPerSecond).toBe(5000);
    rate.add(300_000, 40_000);
    expect(rate.bytesPerSecond).toBe(10_000);
    rate.add(300_000, 60_000);
    expect(rate.bytesPerSecond).toBeUndefined();
  });
});
