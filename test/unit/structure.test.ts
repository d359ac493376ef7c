import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { describe, expect, it } from "vitest";
import { errorCodes } from "../../src/error-codes.js";
import { root } from "../support/folders.js";
import { ringsOf } from "../support/rings.js";

const source = join(root, "src");

/**
 * Parts of `src/` by layer, the lowest first: a module imports from its own layer and from lower
 * ones.
 */
const layers = [
  [
    "aborts.ts",
    "arguments.ts",
    "columns.ts",
    "error-codes.ts",
    "errors.ts",
    "events.ts",
    "inspection.ts",
    "plain-data.ts",
    "units.ts",
    "envs.ts",
  ],
  ["native", "checkpoint"],
  ["plan", "arena", "transfer", "probe", "sample"],
  ["loader"],
  ["index.ts", "cli"],
];

function filesUnder(folder: string, extension: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(extension) && !name.split("/").some((part) => ["target", "tests", "tests.rs"].includes(part)))
    .map((name) => join(folder, name))
    .sort();
}

const modules = filesUnder(source, ".ts");
const textLines = (file: string) => readFileSync(file, "utf8").split("\n");

/** Part of `src/` that a module belongs to: a folder, or a file that lies in none. */
function partOf(file: string): string {
  return relative(source, file).split("/")[0] ?? "";
}

function layerOf(file: string): number {
  return layers.findIndex((parts) => parts.includes(partOf(file)));
}

/** The addon has no module, only declarations. */
function moduleOf(file: string): string {
  return file === join(source, "native/addon.ts") ? join(source, "native/addon.d.ts") : file;
}

function importsOf(file: string): string[] {
  const text = readFileSync(file, "utf8");
  return [...text.matchAll(/(?:from|import)\s*\(?\s*"(\.{1,2}\/[^"]+)"/g)].map(([, path]) =>
    moduleOf(resolve(dirname(file), (path ?? "").replace(/\.js$/, ".ts"))),
  );
}

describe("imports", () => {
  it("know the layer of every module", () => {
    expect(modules.filter((file) => layerOf(file) === -1)).toEqual([]);
  });

  it("run one way: cli, loader, {plan, arena, transfer, probe, sample}, {checkpoint, native}, {errors, units, envs}", () => {
    const against = modules.flatMap((file) =>
      importsOf(file)
        .filter((target) => layerOf(target) > layerOf(file))
        .map((target) => `${relative(source, file)} imports ${relative(source, target)}`),
    );
    expect(against).toEqual([]);
  });

  it("make no ring of modules", () => {
    expect(ringsOf(modules, importsOf, (module) => relative(source, module))).toEqual([]);
  });

  it("find every module that they name", () => {
    const known = new Set(modules);
    expect(modules.flatMap((file) => importsOf(file).filter((target) => !known.has(target)))).toEqual([]);
  });
});

describe("error codes", () => {
  const table = Object.keys(errorCodes);
  // The prefixes of the class table end with an underscore: they are no codes.
  const codesIn = (text: string) => [...text.matchAll(/"(ERR_[A-Z0-9_]*[A-Z0-9])"/g)].map(([, code]) => code ?? "");
  const sources = [...modules.filter((file) => !file.endsWith("/error-codes.ts")), ...filesUnder(join(root, "native"), ".rs")];
  const used = new Map<string, string>();
  for (const file of sources) for (const code of codesIn(readFileSync(file, "utf8"))) used.set(code, relative(root, file));

  it("of TypeScript and Rust are all in the table", () => {
    // Node's own codes are matched, never thrown.
    const foreign = ["ERR_BUFFER_TOO_LARGE"];
    expect([...used].filter(([code]) => !table.includes(code) && !foreign.includes(code))).toEqual([]);
  });

  it("of the table are all used", () => {
    expect(table.filter((code) => !used.has(code))).toEqual([]);
  });

  it("of the table are all told in full", () => {
    for (const [code, { cause, remedy }] of Object.entries(errorCodes)) {
      expect(cause, code).toMatch(/\.$/);
      expect(remedy, code).toMatch(/\.$/);
    }
  });
});

describe("the sources", () => {
  it("take no missing entry of a column for 0: an address or a length would be wrong in silence", () => {
    const indexed = String.raw`[\w)](?:\[[^\]]*\])+`;
    const taken = String.raw`\.(?:at|pop|shift)\([^)]*\)`;
    const silent = new RegExp(String.raw`(?:${indexed}|${taken})\s*(?:\?\?|\|\|)\s*-?\d`);
    expect(["a[i] ?? 0", "a[i][j] ?? 0n", "a.b[i]\n  ?? -1", "a.pop() ?? 0", "a.at(-1) || 0"].filter((text) => !silent.test(text))).toEqual(
      [],
    );
    expect(modules.filter((file) => silent.test(readFileSync(file, "utf8"))).map((file) => relative(source, file))).toEqual([]);
  });

  it("take no missing path, plugin or reason of a column for an empty one", () => {
    const silent = /\.(?:paths|plugins|fallback|names|files)\[[^\]]*\]\s*\?\?\s*""/;
    expect(modules.filter((file) => silent.test(readFileSync(file, "utf8"))).map((file) => relative(source, file))).toEqual([]);
  });

  it("have no comment wider than 100 columns, and the documentation no paragraph", () => {
    const comment = /^\s*(?:\/\/|\/\*\*|\*\s)/;
    const code = [...modules, ...filesUnder(join(root, "native"), ".rs")].filter((file) => !file.endsWith(".d.ts"));
    const pages = [
      "README.md",
      "CONTRIBUTING.md",
      ...["architecture", "fault-injection", "glossary", "hardware"].map((name) => `docs/${name}.md`),
    ];
    // Tables stay as wide as they are, as do examples, and what the benchmark writes of the machine.
    const prose = (text: string) => text.replace(/^```[\s\S]*?^```/gm, "").replace(/^(?:\||Measured on ).*$/gm, "");
    const wide = (file: string, lines: readonly string[]) =>
      lines.filter((line) => line.length > 100 && line.trim().includes(" ")).map((line) => `${relative(root, file)}: ${line}`);
    const comments = (file: string) => textLines(file).filter((line) => comment.test(line) && !/biome-ignore|\/\/! \|/.test(line));
    expect(code.flatMap((file) => wide(file, comments(file)))).toEqual([]);
    expect(pages.flatMap((page) => wide(page, prose(readFileSync(join(root, page), "utf8")).split("\n")))).toEqual([]);
  });

  it("write nothing to the standard streams, but for the command", () => {
    const writers = modules.filter(
      (file) => partOf(file) !== "cli" && /console\.|process\.(stdout|stderr)/.test(readFileSync(file, "utf8")),
    );
    expect(writers).toEqual([]);
  });
});
