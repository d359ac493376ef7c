import { expect, it } from "vitest";
import { errorOf } from "../../src/errors.js";

const json = (value: unknown) => JSON.parse(JSON.stringify(value));

it("an error as JSON has its code, message, remedy and facts, and of its cause what names it", () => {
  const cause = Object.assign(new Error("EACCES: permission denied"), { code: "EACCES" });
  const error = errorOf("ERR_CHECKPOINT_PERMISSION", "/x: this user may not read this file (EACCES)", {
    facts: { file: "/x", errno: "EACCES" },
    cause,
  });
  expect(json({ error })).toEqual({
    error: {
      name: "CheckpointError",
      code: "ERR_CHECKPOINT_PERMISSION",
      message: "/x: this user may not read this file (EACCES)",
      remedy: "Change its permissions, or run as a user who may read it.",
      file: "/x",
      errno: "EACCES",
      cause: { name: "Error", code: "EACCES", message: "EACCES: permission denied" },
    },
  });
});

it("an error as JSON takes addresses, maps, errors and causes that are none", () => {
  const looping: Record<string, unknown> = {};
  looping.self = looping;
  const facts = { address: 4096n, list: [1n], map: new Map([["a", 2n]]), failure: new TypeError("no") };
  expect(json(errorOf("ERR_ABORTED", "stopped", { facts, cause: looping }))).toMatchObject({
    address: "0x1000",
    list: ["0x1"],
    map: { a: "0x2" },
    failure: { name: "TypeError", message: "no" },
    cause: "[object Object]",
  });
  expect(json(errorOf("ERR_ABORTED", "stopped", { cause: "by me" })).cause).toBe("by me");
  expect(json(errorOf("ERR_ABORTED", "stopped", { cause: Symbol("s") })).cause).toBe("Symbol(s)");
});
