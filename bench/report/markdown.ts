import type { Machine } from "../machine.js";
import type { Row } from "../rows.js";
import type { Estimate } from "../statistics.js";
import type { RowSummary, SystemSummary, TargetSummary } from "./summary.js";

/** Rounds a figure to what it can be trusted for. */
export function shortly(value: number): string {
  if (value === 0) return "0";
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return value.toFixed(digits);
}

/** A system's figure in the unit of its row, as a number: GB/s, ms, us or MiB. */
export function shownValue(row: Row, { bytes }: Pick<SystemSummary, "bytes">, figure: number): number {
  switch (row.shown) {
    case "throughput":
      return bytes / figure / 1e9;
    case "ms":
      return figure * 1000;
    case "us":
      return figure / 1000;
    case "peak":
      return figure / 2 ** 20;
    case "delay":
      return figure;
  }
}

export const shownUnit: Readonly<Record<Row["shown"], string>> = {
  throughput: "GB/s",
  ms: "ms",
  us: "us a pair",
  peak: "MiB",
  delay: "ms",
};

function range(low: number, high: number): string {
  return `${shortly(Math.min(low, high))} to ${shortly(Math.max(low, high))}`;
}

/** Every system of a row, the fastest first. */
export function systemTable({ row, systems }: RowSummary): string {
  const unit = shownUnit[row.shown];
  const better = row.shown === "throughput" ? -1 : 1;
  const measured = systems.filter((system) => system.figure !== undefined);
  const sorted = [...measured].sort((a, b) => better * (value(row, a) - value(row, b)));
  const unprimed = systems.some((system) => system.unprimed !== undefined);
  const peaks = row.shown === "throughput";
  const head = [
    "system",
    unit,
    "95 % interval",
    ...(row.shown === "throughput" ? ["seconds"] : []),
    ...(peaks ? ["peak memory, MiB"] : []),
    ...(unprimed ? [`unprimed, ${unit}`] : []),
    "rounds",
  ];
  const lines = sorted.map((system) => {
    const { figure, bytes, peakBytes } = system;
    if (figure === undefined) return [];
    const at = (seconds: number) => shownValue(row, { bytes }, seconds);
    return [
      system.role === "own" ? `**${system.title}**` : system.title,
      shortly(at(figure.median)),
      range(at(figure.low), at(figure.high)),
      ...(row.shown === "throughput" ? [figure.median.toFixed(3)] : []),
      ...(peaks ? [peakBytes === undefined ? "" : String(Math.round(peakBytes / 2 ** 20))] : []),
      ...(unprimed ? [system.unprimed === undefined ? "" : shortly(at(system.unprimed))] : []),
      String(figure.count),
    ];
  });
  const absent = systems
    .filter(({ figure }) => figure === undefined)
    .map(({ title, left }) => `Not measured: ${title} (${left ?? "no reason known"}).`);
  return [table(head, lines), ...absent].join("\n\n");
}

function value(row: Row, system: SystemSummary): number {
  return system.figure === undefined ? 0 : shownValue(row, system, system.figure.median);
}

/** The targets of rows, with the figure, its interval and the verdict. */
export function targetTable(summaries: readonly RowSummary[]): string {
  const lines = summaries.flatMap((summary) => summary.targets.map((target) => targetLine(summary, target)));
  return table(["work", "figure", "median", "95 % interval", "must be", "verdict"], lines);
}

function targetLine({ row, result }: RowSummary, { target, estimate, verdict }: TargetSummary): string[] {
  const peer = row.trials.find(({ key }) => key === result.bestPeer);
  const text = target.text.replace(
    "the best copying peer",
    peer === undefined ? "the best copying peer" : `the best copying peer, ${peer.title}`,
  );
  return [
    row.title,
    text,
    figureText(estimate?.median, target.unit),
    estimate === undefined ? "" : intervalText(estimate),
    boundText(target),
    verdict,
  ];
}

function figureText(figure: number | undefined, unit: string): string {
  return figure === undefined ? "" : unit === "ratio" ? figure.toFixed(2) : `${shortly(figure)} ${unit}`;
}

function intervalText({ low, high, confidence, count }: Estimate): string {
  const text = `${shortly(low)} to ${shortly(high)}`;
  return confidence < 0.95 ? `${text} (${count} rounds, ${Math.round(confidence * 100)} %)` : text;
}

function boundText({ bound, unit }: TargetSummary["target"]): string {
  if (bound === undefined) return "";
  const [word, figure] = "atLeast" in bound ? ["at least", bound.atLeast] : ["at most", bound.atMost];
  return `${word} ${figure}${unit === "ratio" ? "" : ` ${unit}`}`;
}

/** The machine and the versions, in one sentence. */
export function machineText(machine: Machine): string {
  const peers = Object.entries(machine.peers).map(([name, version]) => `${name === "python" ? "Python" : name} ${version}`);
  return (
    `Measured on ${machine.cores} cores (${machine.processor}), ${Math.round(machine.memoryBytes / 2 ** 30)} GiB, ${machine.kernel}, ${machine.fileSystem}, ` +
    `transparent huge pages "${machine.hugePages}", Node ${machine.node}, modelexpress-client ${machine.product}` +
    (peers.length > 0 ? `; ${peers.join(", ")}.` : ".")
  );
}

export function table(head: readonly string[], lines: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
  return [line(head), `|${head.map(() => "---").join("|")}|`, ...lines.map(line)].join("\n");
}
