// Runs the benchmark (bench/) over the built package. Its TypeScript is translated file by file
// into .cache/bench/js; types are checked with the rest.
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { build } from "./build.mjs";
import { isMain, main, root } from "./process.mjs";

async function bench() {
  await build();
  const entry = await translate(join(root, "bench"), join(root, ".cache/bench/js"));
  const { main: run } = await import(pathToFileURL(entry).href);
  return run(process.argv.slice(2));
}

async function translate(from, to) {
  const { default: typescript } = await import("typescript");
  const compilerOptions = { target: "ES2022", module: "ESNext", verbatimModuleSyntax: true };
  rmSync(to, { recursive: true, force: true });
  for (const file of readdirSync(from, { recursive: true }).filter((name) => name.endsWith(".ts"))) {
    const target = join(to, file.replace(/\.ts$/, ".js"));
    mkdirSync(dirname(target), { recursive: true });
    writeFileSync(target, typescript.transpileModule(readFileSync(join(from, file), "utf8"), { compilerOptions }).outputText);
  }
  return join(to, "main.js");
}

if (isMain(import.meta.url)) await main(bench);
