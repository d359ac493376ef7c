import { describe, expect, it } from "vitest";
import { hostBackend } from "../../src/arena/host-backend.js";
import { requireInteger, requireOneOf, requirePowerOfTwo } from "../../src/arguments.js";
import { addon } from "../../src/native/load.js";
import {
  formatBytes,
  formatDuration,
  formatRate,
  hugePageBytes,
  isPowerOfTwo,
  parseBytes,
  parseDuration,
  roundDown,
  roundUp,
} from "../../src/units.js";

it("knows the huge page that the native half rounds up to", () => {
  expect(hostBackend().allocationGranularity()).toBe(Math.max(hugePageBytes, addon().pageBytes()));
});

describe("parseBytes", () => {
  it.each([
    ["0", 0],
    ["4096", 4096],
    ["512MiB", 536_870_912],
    ["2GiB", 2_147_483_648],
    ["2 gib", 2_147_483_648],
    [" 1.5 KiB ", 1536],
    ["64kB", 64_000],
    ["1TiB", 1_099_511_627_776],
    ["3TB", 3_000_000_000_000],
    ["7B", 7],
    ["9007199254740991", Number.MAX_SAFE_INTEGER],
  ])("%s", (text, bytes) => {
    expect(parseBytes(text)).toBe(bytes);
  });

  it.each(["", " ", "-1", "+1", "1e6", "0x10", "1.5", "1,5 MiB", "MiB", "2 GiB x", "2K", "2PiB", "9007199254740992", "99999TiB", "٣"])(
    "refuses %j",
    (text) => {
      expect(parseBytes(text)).toBeUndefined();
    },
  );
});

describe("parseDuration", () => {
  it.each([
    ["0", 0],
    ["30", 30_000],
    ["0.25", 250],
    ["0.29", 290],
    ["0.0001", 1],
    ["500ms", 500],
    ["5s", 5000],
    [" 1.5 MIN ", 90_000],
    ["2m", 120_000],
    ["1h30m", 5_400_000],
    ["2 min 5 s", 125_000],
    ["1s500ms", 1500],
    ["0s", 0],
  ])("%s", (text, ms) => {
    expect(parseDuration(text)).toBe(ms);
  });

  it.each(["", " ", "-1", "+1s", "1e3", "s", "5 days", "1,5s", "5s5s", "5s 1m", "1m 30", "30 1m", "5sec", "Infinity", "1h-1m", "٣s"])(
    "refuses %j",
    (text) => {
      expect(parseDuration(text)).toBeUndefined();
    },
  );
});

it.each([
  [0, "0 B"],
  [1023, "1023 B"],
  [1024, "1 KiB"],
  [1536, "1.5 KiB"],
  [1_048_575, "1 MiB"],
  [2_147_483_648, "2 GiB"],
  [91_000_000, "86.8 MiB"],
  [1023 * 1024, "1023 KiB"],
  [2 ** 44, "16 TiB"],
  [-2048, "-2 KiB"],
])("formatBytes(%d)", (bytes, text) => {
  expect(formatBytes(bytes)).toBe(text);
});

it.each([
  [2.614e9, "2.61 GB/s"],
  [12e9, "12 GB/s"],
  [999, "999 B/s"],
  [45_600, "45.6 kB/s"],
  [Number.NaN, "-"],
  [Number.POSITIVE_INFINITY, "-"],
])("formatRate(%d)", (rate, text) => {
  expect(formatRate(rate)).toBe(text);
});

it.each([
  [0, "0 ms"],
  [0.25, "0.25 ms"],
  [12.345, "12.3 ms"],
  [999.4, "999 ms"],
  [999.7, "1 s"],
  [1500, "1.5 s"],
  [59_940, "59.9 s"],
  [59_960, "1 min 0 s"],
  [125_000, "2 min 5 s"],
])("formatDuration(%d)", (milliseconds, text) => {
  expect(formatDuration(milliseconds)).toBe(text);
});

it("rounds beyond 32 bits", () => {
  expect(roundUp(0, 512)).toBe(0);
  expect(roundUp(1, 512)).toBe(512);
  expect(roundUp(2 ** 40 + 1, 4096)).toBe(2 ** 40 + 4096);
  expect(roundDown(2 ** 40 + 4095, 4096)).toBe(2 ** 40);
});

it("knows powers of two beyond 32 bits and near the end", () => {
  expect([1, 2, 2 ** 31, 2 ** 32, 2 ** 52].filter(isPowerOfTwo)).toHaveLength(5);
  expect([0, -2, 3, 2 ** 32 + 1, 2 ** 53 - 1, 2 ** 53, 0.5, Number.NaN, Number.POSITIVE_INFINITY].filter(isPowerOfTwo)).toEqual([]);
});

it("names option and value in errors", () => {
  expect(requireInteger("threads", 4, { min: 1 })).toBe(4);
  expect(() => requireInteger("threads", 0, { min: 1 })).toThrow("threads must be a positive integer, got 0");
  expect(() => requireInteger("threads", "4", { min: 1, max: 9 })).toThrow("threads must be an integer from 1 to 9, got '4'");
  expect(() => requireInteger("offset", 2 ** 53, { min: 0 })).toThrow("offset must be an integer of at least 0, got 9007199254740992");
  expect(() => requireInteger("threads", 1.5, { min: 1 })).toThrow(
    expect.objectContaining({ code: "ERR_OPTION_INVALID", option: "threads", value: 1.5 }),
  );
  expect(requirePowerOfTwo("alignmentBytes", 256, 4096)).toBe(256);
  expect(() => requirePowerOfTwo("alignmentBytes", 8192, 4096)).toThrow("alignmentBytes must be a power of two up to 4096, got 8192");
  expect(requireOneOf("driver", "map", ["auto", "map"])).toBe("map");
  expect(() => requireOneOf("driver", "mmap", ["auto", "map"])).toThrow(
    expect.objectContaining({ code: "ERR_OPTION_UNKNOWN", option: "driver" }),
  );
  expect(() => requireOneOf("driver", 3, ["auto", "map"])).toThrow(expect.objectContaining({ code: "ERR_OPTION_INVALID" }));
});
