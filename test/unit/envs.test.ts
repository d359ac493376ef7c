import { describe, expect, it } from "vitest";
import { type EnvName, envTable, readEnv } from "../../src/envs.js";

describe("readEnv", () => {
  it.each([
    ["MX_DRIVER", undefined, "auto"],
    ["MX_DRIVER", "", "auto"],
    ["MX_DRIVER", " io_uring ", "io_uring"],
    ["MX_THREADS", undefined, undefined],
    ["MX_THREADS", "", undefined],
    ["MX_THREADS", "1", 1],
    ["MX_THREADS", "1024", 1024],
    ["MX_TIMEOUT", undefined, 0],
    ["MX_TIMEOUT", "0", 0],
    ["MX_TIMEOUT", "30", 30_000],
    ["MX_TIMEOUT", "0.25", 250],
    ["MX_TIMEOUT", "0.0001", 1],
    ["MX_TIMEOUT", "2147483", 2_147_483_000],
    ["MX_TIMEOUT", "500ms", 500],
    ["MX_TIMEOUT", "1m30s", 90_000],
  ] as const)("%s=%s", (name, text, value) => {
    expect(readEnv(name, text === undefined ? {} : { [name]: text })).toBe(value);
  });

  it.each([
    ["MX_DRIVER", "IO_URING"],
    ["MX_DRIVER", "gds"],
    ["MX_THREADS", "0"],
    ["MX_THREADS", "-1"],
    ["MX_THREADS", "1025"],
    ["MX_THREADS", "2.5"],
    ["MX_THREADS", "two"],
    ["MX_THREADS", "0x4"],
    ["MX_TIMEOUT", "-1"],
    ["MX_TIMEOUT", "1 day"],
    ["MX_TIMEOUT", "597h"],
    ["MX_TIMEOUT", "1e3"],
    ["MX_TIMEOUT", "Infinity"],
    ["MX_TIMEOUT", "2147484"],
  ] as const)("refuses %s=%s, naming variable, text and what it takes", (name, text) => {
    const attempt = () => readEnv(name, { [name]: text });
    expect(attempt).toThrow(expect.objectContaining({ code: "ERR_ENV_INVALID", option: name, value: text }));
    expect(attempt).toThrow(`${name} is "${text}": it takes ${envTable[name].takes}`);
  });

  it("reads the environment of the process", () => {
    process.env.MX_THREADS = "3";
    try {
      expect(readEnv("MX_THREADS")).toBe(3);
    } finally {
      delete process.env.MX_THREADS;
    }
  });

  it("has one row per variable, under its own name", () => {
    for (const name of Object.keys(envTable) as EnvName[]) expect(envTable[name].name).toBe(name);
  });
});
