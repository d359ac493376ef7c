import type { Machine } from "../machine.js";
import { machineText, shortly, shownUnit, shownValue } from "./markdown.js";
import type { RowSummary, SystemSummary } from "./summary.js";

/** Sizes in pixels. */
const width = 860;
const labelWidth = 330;
const valueWidth = 96;
const barHeight = 18;
const lineHeight = 26;
const headHeight = 46;
const gap = 18;
const left = 20;
/** Characters of a line of the small print. */
const lineCharacters = 132;

/**
 * Readable on light and dark alike: the colours follow the reader's preference, and nothing has a
 * background.
 */
const style = `
  text { font-family: -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328; }
  .title { font-size: 15px; font-weight: 600; }
  .note { font-size: 12px; fill: #59636e; }
  .label { font-size: 13px; }
  .own { font-weight: 600; }
  .bar { fill: #8c959f; }
  .bar.own { fill: #1a7f37; }
  .limit { fill: none; stroke: #59636e; stroke-width: 1.5; stroke-dasharray: 4 3; }
  .whisker { stroke: #1f2328; stroke-width: 1.5; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .note { fill: #9198a1; }
    .bar { fill: #6e7681; }
    .bar.own { fill: #3fb950; }
    .limit { stroke: #9198a1; }
    .whisker { stroke: #e6edf3; }
  }`;

/**
 * A picture of the rows: a panel each, a bar per system, longest is best where it shows throughput.
 */
export function picture(summaries: readonly RowSummary[], machine: Machine): string {
  const parts: string[] = [];
  let y = 8;
  for (const summary of summaries) {
    const panel = drawPanel(summary, y);
    parts.push(panel.svg);
    y += panel.height + gap;
  }
  for (const line of wrap(`${machineText(machine)} Bars are medians, lines across them 95 % intervals.`, lineCharacters)) {
    y += 16;
    parts.push(text(left, y, "note", line));
  }
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${y + 14}" viewBox="0 0 ${width} ${y + 14}" role="img" aria-label="Results of the benchmark">
<style>${style}
</style>
${parts.join("\n")}
</svg>
`;
}

function drawPanel({ row, systems }: RowSummary, top: number): { svg: string; height: number } {
  const throughput = row.shown === "throughput";
  const measured = systems.filter((system) => system.figure !== undefined && system.role !== "reference");
  const value = (system: SystemSummary) => (system.figure === undefined ? 0 : shownValue(row, system, system.figure.median));
  const sorted = [...measured].sort((a, b) => (throughput ? value(b) - value(a) : value(a) - value(b)));
  const ends = sorted.map((system) =>
    Math.max(...[system.figure?.low ?? 0, system.figure?.high ?? 0].map((end) => shownValue(row, system, end))),
  );
  const scale = (width - left - labelWidth - valueWidth) / Math.max(...ends, Number.MIN_VALUE);
  const parts = [
    text(left, top + 18, "title", row.title),
    text(left, top + 35, "note", `${shownUnit[row.shown]}, ${throughput ? "longer is better" : "shorter is better"}`),
  ];
  for (const [i, system] of sorted.entries()) {
    const y = top + headHeight + i * lineHeight;
    const x = left + labelWidth;
    const own = system.role === "own" ? " own" : "";
    const length = Math.max(1, value(system) * scale);
    const [low, high] = [system.figure?.low ?? 0, system.figure?.high ?? 0]
      .map((end) => x + shownValue(row, system, end) * scale)
      .sort((a, b) => a - b);
    parts.push(
      `<text class="label${own}" x="${x - 10}" y="${y + 14}" text-anchor="end">${escaped(system.title)}</text>`,
      `<rect class="${system.role === "limit" ? "limit" : `bar${own}`}" x="${x}" y="${y}" width="${length.toFixed(1)}" height="${barHeight}" rx="2"/>`,
      `<line class="whisker" x1="${low?.toFixed(1)}" x2="${high?.toFixed(1)}" y1="${y + barHeight / 2}" y2="${y + barHeight / 2}"/>`,
      text(
        Math.max(high ?? 0, x + length) + 8,
        y + 14,
        `label${own}`,
        `${shortly(value(system))} ${shownUnit[row.shown].replace(" a pair", "")}`,
      ),
    );
  }
  return { svg: parts.join("\n"), height: headHeight + sorted.length * lineHeight };
}

function text(x: number, y: number, className: string, content: string): string {
  return `<text class="${className}" x="${x.toFixed(1)}" y="${y.toFixed(1)}">${escaped(content)}</text>`;
}

function escaped(content: string): string {
  return content.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

function wrap(content: string, characters: number): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of content.split(" ")) {
    if (line !== "" && line.length + word.length + 1 > characters) {
      lines.push(line);
      line = word;
    } else {
      line = line === "" ? word : `${line} ${word}`;
    }
  }
  return [...lines, line];
}
