import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { describe, expect, it } from "vitest";
import { root } from "../support/folders.js";
import { ringsOf } from "../support/rings.js";

const core = join(root, "native/core/src");

/** Modules of the crate by layer, the lowest first: a module uses its own layer and lower ones. */
const layers = [["error", "memory", "parallel", "pool", "sync", "sys"], ["arena", "cuda", "vmm"], ["io"], ["checkpoint", "digest", "nixl"]];

/** The same within `io`. */
const layersOfReading = [
  ["align", "bounce", "cache_use", "file", "file_systems", "identity", "layout", "overlay", "patience", "residency", "settings"],
  ["engine", "policy", "queue"],
  ["shared", "threads"],
  ["lanes"],
  ["map", "support", "transfer"],
];

const files = readdirSync(core, { recursive: true, encoding: "utf8" })
  .filter((name) => name.endsWith(".rs") && name !== "lib.rs" && !/test|stand_in/.test(name))
  .map((name) => join(core, name))
  .sort();

/** What a file says before its tests. */
const textOf = (file: string) => (readFileSync(file, "utf8").split(/#\[cfg\(test\)\]\s*mod \w+ \{/)[0] ?? "").replace(/\/\/.*/g, "");

/** `a::{b::C, d}` as `a::b::C` and `a::d`. */
function expanded(path: string): string[] {
  const at = path.indexOf("{");
  if (at === -1) return [path.trim()];
  const parts: string[] = [];
  let depth = 0;
  let part = "";
  for (const letter of path.slice(at + 1, path.lastIndexOf("}"))) {
    depth += letter === "{" ? 1 : letter === "}" ? -1 : 0;
    if (letter === "," && depth === 0) {
      parts.push(part);
      part = "";
    } else part += letter;
  }
  return [...parts, part].filter((text) => text.trim() !== "").flatMap((text) => expanded(path.slice(0, at) + text.trim()));
}

/** The file of a module in a folder, where there is one. */
function fileOf(folder: string, name: string): string | undefined {
  return [join(folder, `${name}.rs`), join(folder, name, "mod.rs")].find((file) => existsSync(file));
}

/** Folder in which the submodules of a file lie. */
const folderOf = (file: string) => (file.endsWith("/mod.rs") || file.endsWith("/lib.rs") ? dirname(file) : file.slice(0, -".rs".length));

/**
 * The file that a path leads to from a module: through submodules, then through what the last one
 * exports of its own.
 */
function target(from: string, names: readonly string[]): string {
  const [name, ...rest] = names;
  if (name === undefined) return from;
  const inner = fileOf(folderOf(from), name);
  if (inner !== undefined) return target(inner, rest);
  const exported = [...textOf(from).matchAll(/pub(?:\(\w+\))? use (?:self::)?([^;]+);/g)].flatMap(([, path]) => expanded(path ?? ""));
  const through = exported.map((path) => path.split("::")).find((path) => path.at(-1) === name && path.length > 1);
  if (through === undefined || ["crate", "super", "std"].includes(through[0] ?? "")) return from;
  return target(from, through);
}

/** Files that a file uses. Its own submodules are parts of it, not something that it uses. */
function usesOf(file: string): string[] {
  const text = textOf(file);
  const trees = [...text.matchAll(/\b(?:pub(?:\(\w+\))? )?use ((?:crate|super)::[^;]+);/g)].flatMap(([, path]) => expanded(path ?? ""));
  const inline = [...text.matchAll(/\b(?:crate|super)(?:::\w+)+/g)].map(([path]) => path);
  return [...trees, ...inline]
    .map((path) => {
      let [first, ...names] = path.split(/::| as /);
      let from = join(core, "lib.rs");
      if (first === "super") {
        let folder = file.endsWith("/mod.rs") ? dirname(dirname(file)) : dirname(file);
        while (names[0] === "super") {
          folder = dirname(folder);
          names = names.slice(1);
        }
        from = folder === core ? join(core, "lib.rs") : join(folder, "mod.rs");
      }
      return target(from, names);
    })
    .filter((used) => used !== file && used !== join(core, "lib.rs"));
}

const uses = new Map(files.map((file) => [file, [...new Set(usesOf(file))]]));
const nameOf = (file: string) => relative(core, file);

function against(parts: readonly (readonly string[])[], folder: string): string[] {
  const layerOf = (file: string) => {
    const part = (relative(folder, file).split("/")[0] ?? "").replace(/\.rs$/, "");
    return parts.findIndex((names) => names.includes(part));
  };
  const inside = files.filter((file) => file.startsWith(`${folder}/`) && relative(folder, file) !== "mod.rs");
  const unknown = inside.filter((file) => layerOf(file) === -1).map((file) => `${nameOf(file)} is in no layer`);
  const upwards = inside.flatMap((file) =>
    (uses.get(file) ?? [])
      .filter((used) => inside.includes(used) && layerOf(used) > layerOf(file))
      .map((used) => `${nameOf(file)} uses ${nameOf(used)}`),
  );
  return [...unknown, ...upwards];
}

describe("the Rust modules", () => {
  it("use their own layer of the crate and lower ones", () => {
    expect(against(layers, core)).toEqual([]);
  });

  it("that read files use their own layer and lower ones", () => {
    expect(against(layersOfReading, join(core, "io"))).toEqual([]);
  });

  it("make no ring", () => {
    expect(ringsOf(files, (file) => uses.get(file) ?? [], nameOf)).toEqual([]);
  });

  it("are found by their paths: the test sees what they use", () => {
    const seen = (file: string) => (uses.get(join(core, file)) ?? []).map(nameOf);
    expect(seen("io/lanes/scout.rs")).toEqual(expect.arrayContaining(["io/lanes/publish.rs", "io/policy.rs", "io/queue.rs"]));
    expect(seen("io/transfer.rs")).toEqual(expect.arrayContaining(["arena/pin.rs", "io/engine/uring.rs", "io/lanes/buffered.rs"]));
    expect(seen("io/bounce.rs")).toEqual(expect.arrayContaining(["vmm/host.rs", "sys.rs"]));
  });
});
