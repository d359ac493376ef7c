import { describe, expect, it } from "vitest";
import { Output, printable, toJson } from "../../src/cli/output.js";

function collected() {
  const texts: string[] = [];
  const stream = { write: (text: string) => texts.push(text) };
  return { output: new Output(stream, stream), text: () => texts.join("") };
}

describe("Output", () => {
  it("writes addresses as hex strings and maps as objects", () => {
    expect(toJson({ address: 0x7f0012345678n, zero: 0n, map: new Map([["__proto__", 1]]), none: undefined })).toBe(
      '{"address":"0x7f0012345678","zero":"0x0","map":{"__proto__":1}}',
    );
  });

  it("lines columns up, numbers to the right, without spaces at the end", () => {
    const { output, text } = collected();
    output.table(
      [{ title: "name" }, { title: "bytes", right: true }, { title: "why" }],
      [
        ["a", "1", ""],
        ["longer", "1000000", "because"],
      ],
    );
    expect(text()).toBe("name      bytes  why\na             1\nlonger  1000000  because\n");
  });

  it("leaves out pairs without a value", () => {
    const { output, text } = collected();
    output.pairs([
      ["a", "1"],
      ["longer", undefined],
      ["bc", "2"],
    ]);
    expect(text()).toBe("a   1\nbc  2\n");
  });

  it("lets no name of a file steer the terminal", () => {
    expect(printable("a\u001b[31mb\n\u202ec\u0085é漢")).toBe("a\\u001b[31mb\\u000a\\u202ec\\u0085é漢");
  });
});
