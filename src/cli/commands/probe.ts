import type { Command } from "commander";
import { explained } from "../../checkpoint/explained.js";
import { readablePlace } from "../../checkpoint/resolve.js";
import type { Finding } from "../../probe/finding.js";
import { gdsLooks } from "../../probe/gds.js";
import { probe } from "../../probe/probe.js";
import type { Context } from "../context.js";
import { options } from "../options.js";
import { wrapped } from "../wrapped.js";

interface ProbeArguments {
  readonly json?: true;
}

const help = `
Nothing is changed: one file is opened, one ring is made and closed, a few files of the kernel are read; a process of its own loads the libraries of
NIXL, CUDA and cuFile, and calls nothing but the CUDA driver. "?" stands where something cannot be found out. The exit code is 0 also when
something is missing, for loads fall back and say so. A path that does not exist, or that this user may not read, is an error.

Examples:
  mx probe
  mx probe /mnt/models --json | jq '.findings[] | select(.found == false)'`;

/** Characters of a reason in one line. */
const whyWidth = 90;

export function addProbe(program: Command, { output }: Context): void {
  program
    .command("probe")
    .description("Show what this machine can do for a load, and why not more.")
    .argument("[path]", "checkpoint, or a folder on the storage in question; default: the working directory")
    .addOption(options.json())
    .addHelpText("after", help)
    .action(async (path: string | undefined, { json }: ProbeArguments) => {
      const report = await probe(path === undefined ? undefined : await placeToProbe(path));
      if (json) {
        output.json(report);
        return;
      }
      const { defaults, findings } = report;
      output.pairs([
        ["path", report.path],
        ["driver", defaults.driver ?? "none: MX_DRIVER is not valid"],
        ["reads", defaults.reads],
        ["threads", defaults.threads === null ? "?" : String(defaults.threads)],
        ["to a GPU", defaults.gpuReads],
      ]);
      const forGpu = new Set(gdsLooks.map(({ name }) => name));
      const rows = (part: readonly Finding[]) => part.flatMap(rowsOf);
      output.line();
      output.table(columns("for any load"), rows(findings.filter(({ name }) => !forGpu.has(name))));
      output.line();
      output.table(columns("for a GPU"), rows(findings.filter(({ name }) => forGpu.has(name))));
    });
}

/** What a wrong path names is nothing to be told of: that is an error. */
async function placeToProbe(path: string): Promise<string> {
  try {
    return await readablePlace(path);
  } catch (thrown) {
    throw await explained(thrown);
  }
}

function columns(what: string) {
  return [{ title: what.padEnd("cufile-configuration".length) }, { title: "here" }, { title: "why" }];
}

function rowsOf({ name, found, why, remedy }: Finding): string[][] {
  const lines = [...wrapped(why, whyWidth), ...(remedy === null ? [] : wrapped(`to do: ${remedy}`, whyWidth))];
  return lines.map((line, at) => (at === 0 ? [name, found === null ? "?" : found ? "yes" : "no", line] : ["", "", line]));
}
