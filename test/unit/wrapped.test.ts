import { describe, expect, it } from "vitest";
import { fitted, wrapped } from "../../src/cli/wrapped.js";

describe("wrapped()", () => {
  it("cuts between words, and leaves a word that is longer whole", () => {
    expect(wrapped("one two three /a/very/long/path four", 9)).toEqual(["one two", "three", "/a/very/long/path", "four"]);
  });
});

describe("fitted()", () => {
  it("leaves what fits as it is, blanks and empty lines too", () => {
    const text = "Examples:\n  mx load  x\n\n  end";
    expect(fitted(text, 20)).toBe(text);
    expect(fitted("x".repeat(500))).toBe("x".repeat(500));
  });

  it("goes on below the last column of a line, where there is room", () => {
    expect(fitted("  remedy  install it, or give its path with the option library", 40)).toBe(
      "  remedy  install it, or give its path\n          with the option library",
    );
    expect(fitted("  a long first column  and what it means", 30)).toBe("  a long first column and\n    what it means");
  });

  it("goes on two further in where there is one column", () => {
    expect(fitted("mx: there is no tensor of that name", 20)).toBe("mx: there is no\n  tensor of that\n  name");
  });

  it.each([1, 2, 5, 12])("keeps every word in %d columns", (width) => {
    expect(fitted("  remedy  look at\n\n  it", width).split(/\s+/).filter(Boolean)).toEqual(["remedy", "look", "at", "it"]);
  });
});
