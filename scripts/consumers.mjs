// The packed package as consumers meet it: their TypeScript in every mode of resolution, and
// require() and import() of their Node.
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { capture } from "./process.mjs";

/** Oldest TypeScript that reads the types, as README.md says, and the newest. */
const compilers = [
  ["TypeScript 5.2", "typescript-oldest", "typescript@5.2"],
  ["the newest TypeScript", "typescript-newest", "typescript@latest"],
];

const program = `
const model: LoadedModel = await loadCheckpoint("/x", { timeoutMs: 1000 });
const bytes: Bytes = model.tensors.get("a")!.bytes();
const shape: readonly number[] = model.tensors.get("a")!.shape;
export const values = [bytes.buffer.byteLength, shape.length, model.report.bytes];
`;
const fromModule = `import { loadCheckpoint, type Bytes, type LoadedModel } from "modelexpress-client";\n${program}`;
// TypeScript reads a CommonJS file's import of an ES module by import() only.
const fromCommonJs = `async function main() {
const { loadCheckpoint, VmmArena } = await import("modelexpress-client");
const model = await loadCheckpoint("/x");
const arena: InstanceType<typeof VmmArena> = model.arena;
return [model.tensors.size, arena.totalBytes];
}
export = main;`;

const cases = [
  ["node16, ES module", "module.mts", ["--module", "node16"]],
  ["node16, CommonJS", "commonjs.cts", ["--module", "node16"]],
  ["nodenext, ES module", "module.mts", ["--module", "nodenext"]],
  ["nodenext, CommonJS", "commonjs.cts", ["--module", "nodenext"]],
  ["bundler", "module.mts", ["--module", "esnext", "--moduleResolution", "bundler"]],
];

/**
 * Tries the package installed in `folder`; `count(name, problem)` is told each outcome,
 * `skip(name, reason)` what cannot be had.
 */
export function tryConsumers(folder, count, skip) {
  writeFileSync(join(folder, "module.mts"), fromModule);
  writeFileSync(join(folder, "commonjs.cts"), fromCommonJs);
  const types = install(folder, ["@types/node@20"]);
  for (const [title, name, wanted] of compilers) {
    const problem = types ?? install(folder, [`${name}@npm:${wanted}`]);
    if (problem !== undefined) {
      skip(title, problem);
      continue;
    }
    for (const [mode, file, options] of cases) {
      const args = [
        `node_modules/${name}/bin/tsc`,
        "--noEmit",
        "--strict",
        "--target",
        "es2022",
        "--skipLibCheck",
        "false",
        ...options,
        file,
      ];
      const { code, stdout, stderr } = capture(process.execPath, args, { cwd: folder });
      count(`${title}, ${mode}`, code === 0 ? undefined : (stdout || stderr).trim().slice(0, 500));
    }
  }
}

/** Tries how CommonJS code takes the package, under one Node. */
export function tryCommonJs(folder, node, label, count) {
  const script = join(folder, "commonjs.cjs");
  const requires = ["20.19", "22.12"].map((text) => text.split(".").map(Number));
  const [major, minor] = capture(node, ["-p", "process.versions.node"]).stdout.split(".").map(Number);
  const canRequire = major > 22 || requires.some(([least, from]) => major === least && minor >= from);
  writeFileSync(
    script,
    `import("modelexpress-client").then(({ loadCheckpoint }) => {
       ${canRequire ? 'if (require("modelexpress-client").loadCheckpoint !== loadCheckpoint) throw new Error("require() gives another copy");' : ""}
     });`,
  );
  const { code, stderr } = capture(node, ["--no-warnings", script], { cwd: folder, timeout: 60_000 });
  count(`${label}: ${canRequire ? "require() and " : ""}import() from CommonJS`, code === 0 ? undefined : stderr.trim().slice(-500));
}

/** Installs packages beside what is there. Returns what went wrong, if anything did. */
function install(folder, wanted) {
  mkdirSync(folder, { recursive: true });
  const { code, stderr } = capture("npm", ["install", "--no-audit", "--no-fund", ...wanted], {
    cwd: folder,
    timeout: 300_000,
  });
  return code === 0 && existsSync(join(folder, "node_modules"))
    ? undefined
    : `${wanted.join(" ")} cannot be had: ${stderr.trim().slice(-300)}`;
}
