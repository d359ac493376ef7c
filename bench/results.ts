import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import type { Machine } from "./machine.js";
import { resultsFile } from "./paths.js";
import type { RowResult } from "./rounds.js";

/** What the last measurements gave, row by row. Rows measured alone replace their former result. */
export interface Results {
  readonly machine: Machine;
  readonly rows: Readonly<Record<string, RowResult>>;
}

export function readResults(): Results | undefined {
  return existsSync(resultsFile) ? (JSON.parse(readFileSync(resultsFile, "utf8")) as Results) : undefined;
}

export function addResult(machine: Machine, row: RowResult): Results {
  const results = { machine, rows: { ...readResults()?.rows, [row.id]: row } };
  mkdirSync(dirname(resultsFile), { recursive: true });
  writeFileSync(`${resultsFile}.partial`, JSON.stringify(results));
  renameSync(`${resultsFile}.partial`, resultsFile);
  return results;
}
