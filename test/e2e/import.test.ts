import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { root } from "../support/folders.js";
import { runNode } from "../support/run-node.js";

/** The files that an import of `file` in lib/ loads, by its import statements and theirs. */
function loadedBy(file: string, known = new Set<string>()): Set<string> {
  known.add(file);
  const text = readFileSync(join(root, "lib", file), "utf8");
  for (const [, next = ""] of text.matchAll(/(?:from|import) "\.\/([^"]+)";$/gm)) if (!known.has(next)) loadedBy(next, known);
  return known;
}

it("an import loads three files at most", () => {
  const files = [...loadedBy("index.js")];
  expect(files.length).toBeLessThanOrEqual(3);
  expect(files.filter((file) => !/^(index|chunk-[A-Z0-9]{8})\.js$/.test(file))).toEqual([]);
});

it("an import loads neither the addon nor the heavy modules of Node, nor anything from node_modules", async () => {
  const { stdout, stderr } = await runNode(`
    import { readFileSync } from "node:fs";
    const before = new Set(process.moduleLoadList);
    await import("modelexpress-client");
    const heavy = /^NativeModule (crypto|child_process|zlib|net|http|worker_threads|tls|dns|inspector)$/;
    console.log(JSON.stringify({
      heavy: process.moduleLoadList.filter((name) => !before.has(name) && heavy.test(name)),
      addon: readFileSync("/proc/self/maps", "latin1").includes(".node"),
    }));`);
  expect([JSON.parse(stdout), stderr]).toEqual([{ heavy: [], addon: false }, ""]);
  const code = [...loadedBy("index.js")].map((file) => readFileSync(join(root, "lib", file), "utf8")).join("\n");
  expect([...code.matchAll(/^(?:import|export) .* from "(?!node:|\.)(.+)";$/gm)].map(([, name]) => name)).toEqual([]);
});

it("a stack trace names the functions as the sources have them", async () => {
  const { stdout } = await runNode(`
    import { VmmArena, StubBackend } from "modelexpress-client";
    try { new VmmArena({ backend: new StubBackend(), totalBytes: -1 }) } catch (error) { console.log(error.stack) }`);
  expect(stdout).toMatch(/^ArenaError: totalBytes /);
  expect(stdout).toMatch(/at new VmmArena \(file:.*\/lib\/chunk-[A-Z0-9]+\.js:\d+:\d+\)/);
});
