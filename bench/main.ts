import { parseArgs } from "node:util";
import { buildPrograms, describeMachine, prepareNixl } from "./machine.js";
import { installPeers, whyNotInstalled } from "./peers.js";
import { machineText, systemTable, targetTable } from "./report/markdown.js";
import { publish } from "./report/publish.js";
import { missed, type RowSummary, summarize } from "./report/summary.js";
import { addResult, readResults } from "./results.js";
import { measureRow } from "./rounds.js";
import { rows, type Trial } from "./rows.js";
import { systemOf, usesNixl } from "./systems.js";

const help = `npm run bench -- [options] [row ...]

Measures the rows of the benchmark, all of them unless some are named:
  ${rows.map(({ id }) => id).join(", ")}

  --quick            few rounds: a look, not a result
  --rounds <count>   rounds to measure (default 15)
  --no-unprimed      leave out the loads without primed memory, which wait for 10 s each
  --scale <part>     shrink the checkpoints, to try the bench itself out
  --publish          write docs/benchmarks.svg, README.md and docs/benchmarks.md from the last result of every row
  --no-run           measure nothing: with --publish
  --install-peers    install the other loaders into .cache/bench-venv first (about 7 GB)

A quiet machine is needed. Exits with 1 when a row misses its target.`;

/** Runs the bench with the arguments of its command line; resolves to the exit code. */
export async function main(args: readonly string[]): Promise<number> {
  const { values, positionals } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: {
      help: { type: "boolean" },
      quick: { type: "boolean", default: false },
      rounds: { type: "string" },
      scale: { type: "string", default: "1" },
      publish: { type: "boolean", default: false },
      "no-run": { type: "boolean", default: false },
      "no-unprimed": { type: "boolean", default: false },
      "install-peers": { type: "boolean", default: false },
    },
  });
  if (values.help) return say(help, 0);
  const unknown = positionals.filter((id) => !rows.some((row) => row.id === id));
  if (unknown.length > 0) return say(`There is no row ${unknown.join(", ")}; there are ${rows.map(({ id }) => id).join(", ")}.`, 64);
  const rounds = Number(values.rounds ?? (values.quick ? 3 : 15));
  const scale = Number(values.scale);
  if (!(Number.isInteger(rounds) && rounds > 0 && scale > 0 && scale <= 1))
    return say("--rounds takes a positive integer, --scale a part of 1.", 64);

  if (values["install-peers"]) installPeers();
  buildPrograms();
  const machine = describeMachine();
  const measured: RowSummary[] = [];
  if (!values["no-run"]) {
    const asked = rows.filter(({ id }) => positionals.length === 0 || positionals.includes(id));
    const throughNixl = ({ system }: Trial) => usesNixl(systemOf(system));
    const noNixl = asked.some(({ trials }) => trials.some(throughNixl)) ? prepareNixl() : undefined;
    for (const row of asked) {
      say(`${row.id}: ${row.title}`);
      const result = await measureRow(row, {
        rounds,
        screeningRounds: values.quick ? 2 : 3,
        unprimedRounds: values["no-unprimed"] ? 0 : values.quick ? 1 : 3,
        idleSeconds: 10,
        scale,
        whyNot: (trial) => (throughNixl(trial) ? noNixl : whyNotInstalled(trial, machine.peers)),
        say,
      });
      addResult(machine, result);
      const summary = summarize(row, result);
      measured.push(summary);
      say(`\n${systemTable(summary)}\n\n${targetTable([summary])}\n`);
    }
    say(`${machineText(machine)}\n\n${targetTable(measured)}`);
  }
  if (values.publish) {
    const results = readResults();
    const shown = rows.flatMap((row) => {
      const result = results?.rows[row.id];
      return result === undefined ? [] : [summarize(row, result)];
    });
    if (results === undefined) return say("There is no result to publish yet.", 66);
    const shrunk = shown.filter(({ result }) => result.scale !== 1).map(({ row }) => row.id);
    if (shrunk.length > 0) return say(`Not published: ${shrunk.join(", ")} measured with shrunk checkpoints.`, 65);
    publish(shown, results.machine);
    say("Written: docs/benchmarks.svg, README.md, docs/benchmarks.md");
  }
  return measured.some(missed) ? 1 : 0;
}

function say(text: string): void;
function say(text: string, exitCode: number): number;
function say(text: string, exitCode?: number): number | undefined {
  process.stdout.write(`${text}\n`);
  return exitCode;
}
