import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Machine } from "../machine.js";
import { root } from "../paths.js";
import { machineText, shortly, shownValue, systemTable, table, targetTable } from "./markdown.js";
import { picture } from "./picture.js";
import type { RowSummary, SystemSummary } from "./summary.js";

const [beginMark, endMark] = ["<!-- bench:begin -->", "<!-- bench:end -->"];
/** Rows that the picture shows. */
const pictured = (summary: RowSummary) => ["throughput", "ms"].includes(summary.row.shown);

/** Writes the picture, and the results between the marks of README.md and docs/benchmarks.md. */
export function publish(summaries: readonly RowSummary[], machine: Machine): void {
  writeFileSync(join(root, "docs/benchmarks.svg"), picture(summaries.filter(pictured), machine));
  replaceBetweenMarks(join(root, "README.md"), readmeText(summaries, machine));
  replaceBetweenMarks(join(root, "docs/benchmarks.md"), pageText(summaries, machine));
}

function readmeText(summaries: readonly RowSummary[], machine: Machine): string {
  const loads = summaries.filter(({ row }) => row.shown === "throughput");
  const lines = loads.map(({ row, systems, result }) => [
    row.title,
    ...[row.subject, systems.find(({ role }) => role === "limit")?.key, result.bestPeer].map((key) =>
      cell(systems.find((system) => system.key === key)),
    ),
    systems.find((system) => system.key === result.bestPeer)?.title ?? "none installed",
  ]);

  function cell(system: SystemSummary | undefined): string {
    const row = loads.find(({ systems }) => system !== undefined && systems.includes(system))?.row;
    return system?.figure === undefined || row === undefined ? "" : `${shortly(shownValue(row, system, system.figure.median))} GB/s`;
  }

  return [
    "![Benchmark results](docs/benchmarks.svg)",
    table(["work", "modelexpress-client", "limit of the machine", "best peer", "which peer"], lines),
    machineText(machine),
  ].join("\n\n");
}

function pageText(summaries: readonly RowSummary[], machine: Machine): string {
  const sections = summaries.map((summary) => `### ${summary.row.title}\n\n${systemTable(summary)}`);
  return ["![Benchmark results](benchmarks.svg)", machineText(machine), "### Targets", targetTable(summaries), ...sections].join("\n\n");
}

function replaceBetweenMarks(file: string, content: string): void {
  const text = readFileSync(file, "utf8");
  const [begin, end] = [text.indexOf(beginMark), text.indexOf(endMark)];
  if (begin < 0 || end < begin) throw new Error(`${file} needs the lines ${beginMark} and ${endMark}, in this order`);
  writeFileSync(file, `${text.slice(0, begin + beginMark.length)}\n${content}\n${text.slice(end)}`);
}
