// Writes src/native/addon.d.ts, the declarations of the addon, from the records that napi-derive
// leaves while it compiles the crate mx-node: one JSON object a line. `npm run build` does so; what
// is committed must be what is generated (`npm run check`).
import { existsSync, mkdirSync, readFileSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { bin, capture, root, Stop } from "./process.mjs";

const folder = join(root, ".cache/type-defs");
const records = join(folder, "mx-node");

/** Where the declarations are. */
export const addonTypes = "src/native/addon.d.ts";

const head = `// Generated from native/node by \`npm run build\`: change the Rust, and commit this file with it.
import type { Address, ArenaFrame, Bytes } from "./hand-typed.js";

`;

/**
 * Calls `compile` with the environment that makes napi-derive leave its records, then writes the
 * declarations.
 */
export async function withAddonTypes(compile) {
  mkdirSync(folder, { recursive: true });
  // Cargo leaves out a compilation whose product is there, and its records may have been removed.
  if (!existsSync(records)) utimesSync(join(root, "native/node/src/lib.rs"), new Date(), new Date());
  const compiled = await compile({ NAPI_TYPE_DEF_TMP_FOLDER: folder });
  const lines = readFileSync(records, "utf8").trim().split("\n");
  const text = formatted(head + declarations(lines.map((line) => JSON.parse(line))).join("\n\n"));
  const target = join(root, addonTypes);
  if (!existsSync(target) || readFileSync(target, "utf8") !== text) writeFileSync(target, text);
  return compiled;
}

/** A class comes in several records, its own and those of its methods; every other item in one. */
function declarations(items) {
  const methodsOf = (name) => items.filter((item) => item.kind === "impl" && item.name === name).map((item) => item.def);
  return items.flatMap(({ kind, name, js_doc, def }) => {
    switch (kind) {
      case "struct": {
        const body = methodsOf(name).join("\n");
        const made = /^\s*constructor\(/m.test(body) ? "" : "private constructor()\n";
        return `${js_doc}export declare class ${name} {\n${made}${withPromises(body)}\n}`;
      }
      case "interface":
        return `${js_doc}export interface ${name} {\n${def.replace(/^(?=\w+\??:)/gm, "readonly ")}\n}`;
      case "string_enum":
        return `${js_doc}export type ${name} =\n${def.replace(/^\w+ = ('[^']*'),?$/gm, "| $1")}`;
      case "fn":
        return `${js_doc}export declare ${withPromises(def)}`;
      case "impl":
        return [];
      default:
        throw new Stop(`napi-derive left a record of ${name} that scripts/addon-types.mjs does not know: ${kind}`);
    }
  });
}

/**
 * napi-derive takes what a promise brings for an argument: None for what may be undefined, too, and
 * nothing at all for undefined.
 */
function withPromises(def) {
  return def.replace(/(?<=: Promise<.*) \| undefined(?= \| null>)/g, "").replaceAll(": Promise<undefined>", ": Promise<void>");
}

function formatted(text) {
  const { code, stdout, stderr } = capture(bin("biome"), ["format", `--stdin-file-path=${addonTypes}`], { input: text });
  if (code !== 0) throw new Stop(`The declarations of the addon cannot be formatted: ${stderr}`);
  return stdout;
}
