// Brings the npm packages of package-lock.json, unless node_modules is as new as that file.
import { statSync } from "node:fs";
import { isMain, main, must, root } from "./process.mjs";

export async function install() {
  const modified = (path) => statSync(root + path, { throwIfNoEntry: false })?.mtimeMs ?? 0;
  // npm writes this file last.
  if (modified("node_modules/.package-lock.json") >= modified("package-lock.json")) return;
  await must("npm", ["ci", "--include=dev", "--no-audit", "--no-fund"]);
}

if (isMain(import.meta.url)) await main(install);
