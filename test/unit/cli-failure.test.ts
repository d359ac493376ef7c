import { describe, expect, it } from "vitest";
import { tellFailure } from "../../src/cli/failure.js";
import { Output, type TextStream } from "../../src/cli/output.js";
import { errorOf } from "../../src/errors.js";

/** What is written to stderr, a terminal of so many columns where any are given. */
function told(thrown: unknown, columns?: number): string {
  let text = "";
  const stderr: TextStream = {
    write: (part) => {
      text += part;
    },
    ...(columns === undefined ? {} : { isTTY: true, columns }),
  };
  tellFailure(thrown, new Output({ write() {} }, stderr), false);
  return text;
}

describe("an error for people", () => {
  it("prints line breaks as such, further in than code and remedy", () => {
    const error = errorOf("ERR_VERIFY_MISMATCH", "two things\nfirst: a\r\nsecond: b\n");
    expect(told(error)).toMatch(/^mx: two things\n {4}first: a\n {4}second: b\n {2}code {4}ERR_VERIFY_MISMATCH\n {2}remedy {2}\S.*\n$/);
  });

  it("fits a terminal's width", () => {
    const error = errorOf("ERR_NIXL_NOT_FOUND", "a message that is longer than forty columns, in words");
    expect(told(error, 40).split("\n")).toEqual([
      "mx: a message that is longer than",
      "  forty columns, in words",
      "  code    ERR_NIXL_NOT_FOUND",
      "  remedy  Install it, or give its path",
      "          with the option `library` or",
      "          MX_NIXL_LIBRARY. Read on: `mx",
      '          probe`, and "On a GPU" in the',
      "          README.",
      "",
    ]);
  });

  it("lets no name of a file pass for a code or steer the terminal", () => {
    const text = told(errorOf("ERR_CHECKPOINT_NOT_FOUND", "/x\n  code    ERR_FAKE\u001b[2J: no such file"));
    expect(text).toContain("\n      code    ERR_FAKE\\u001b[2J: no such file\n  code    ERR_CHECKPOINT_NOT_FOUND\n");
  });
});
