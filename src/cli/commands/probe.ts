import type { Command } from "commander";
import { probeGds } from "../../probe/gds.js";
import { probe } from "../../probe/probe.js";
import type { Context } from "../context.js";
import { options } from "../options.js";

interface ProbeArguments {
  readonly gds?: true;
  readonly json?: true;
}

const help = `
Nothing is changed: one file is opened, one ring is made and closed, a few files of the kernel are read. "?" stands where something cannot be
found out. The exit code is 0 also when something is missing: a load falls back, and says so. With --gds the libraries of NIXL and CUDA are loaded too.

Examples:
  mx probe
  mx probe /mnt/models --json | jq '.findings[] | select(.found == false)'`;

export function addProbe(program: Command, { output }: Context): void {
  program
    .command("probe")
    .description("Show what this machine can do for a load, and why not more.")
    .argument("[path]", "checkpoint, or a folder on the storage in question; default: the working directory")
    .option("--gds", "also what reads straight to a GPU need: NIXL, the CUDA driver, nvidia_fs, cuFile")
    .addOption(options.json())
    .addHelpText("after", help)
    .action(async (path: string | undefined, { gds, json }: ProbeArguments) => {
      const found = probe(path);
      const report = gds ? { ...found, findings: [...found.findings, ...(await probeGds())] } : found;
      if (json) {
        output.json(report);
        return;
      }
      const { defaults } = report;
      output.pairs([
        ["path", report.path],
        ["driver", defaults.driver ?? "none: MX_DRIVER is not valid"],
        ["reads", defaults.reads],
        ["threads", defaults.threads === null ? "?" : String(defaults.threads)],
      ]);
      output.line();
      output.table(
        [{ title: "what" }, { title: "here" }, { title: "why" }],
        report.findings.flatMap(({ name, found, why, remedy }) => [
          [name, found === null ? "?" : found ? "yes" : "no", why],
          ...(remedy === null ? [] : [["", "", `to do: ${remedy}`]]),
        ]),
      );
    });
}
