import { Command, CommanderError } from "commander";
import { addonVersion } from "../native/load.js";
import { addBench } from "./commands/bench.js";
import { addCompletion } from "./commands/completion.js";
import { addInspect } from "./commands/inspect.js";
import { addLoad } from "./commands/load.js";
import { addPlan } from "./commands/plan.js";
import { addProbe } from "./commands/probe.js";
import { addSample } from "./commands/sample.js";
import { addVerify } from "./commands/verify.js";
import type { Context } from "./context.js";
import { tellFailure } from "./failure.js";
import { fitted } from "./wrapped.js";

const help = `
A checkpoint is a .safetensors file, a .safetensors.index.json, or a folder with either. A repository of the Hub that was
downloaded before can be given as org/name or org/name@revision: it is looked up in the local cache (HF_HUB_CACHE, HF_HOME).

Examples:
  mx inspect ./Llama-3-8B                # what is in it
  mx load ./Llama-3-8B                   # load all of it, and show how that went
  mx load ./Llama-3-8B --device cuda:0   # into the memory of a GPU
  mx load ./Llama-3-8B --json --digest   # SHA-256 of every tensor as it lies in memory
  mx verify ./Llama-3-8B                 # is every byte the one that was published?
  mx probe                               # what this machine can do, and why not more

Results go to stdout as text, errors to stderr. With --json stdout always holds exactly one JSON document: the result, or, if there is none, the error
as { "error": { code, message, remedy, exit, ... } }. The error is on stderr too. Addresses are hex strings. A terminal shows progress on stderr.

Exit codes (those below 100 are of sysexits.h):
    0  done                                    74  the disk or the file system failed
   64  wrong usage: an option or argument      75  timed out
   65  the data is bad: format or digest       70  a fault of mx itself: please report it
   66  the input is not there or not readable 130  interrupted by SIGINT (Ctrl-C)
   69  this machine lacks something: kernel,  143  ended by SIGTERM
       memory, addon, CUDA or NIXL

Environment: MX_DRIVER, MX_THREADS, MX_TIMEOUT set defaults (docs/environment.md); NODE_DEBUG=modelexpress tells events.`;

/**
 * Columns of a help text: those of the terminal, where it is narrower than the texts are written
 * for.
 */
function helpWidth({ stdout }: Context["output"]): number {
  return Math.min(140, stdout.isTTY === true ? (stdout.columns ?? 140) : 140);
}

/** Runs one command line and returns the exit code. Nothing is thrown. */
export async function runCli(args: readonly string[], context: Context): Promise<number> {
  const { output } = context;
  const json = asksForJson(args);
  /** Help or version, which are written as JSON below. */
  const asked: string[] = [];
  const program = new Command("mx")
    .description("Loads safetensors checkpoints from storage to named tensors in memory, as fast as the machine allows.")
    .version(addonVersion, "-V, --version")
    .helpCommand("help [command]", "help for a command")
    .addHelpText("after", help)
    .configureHelp({ helpWidth: helpWidth(output) })
    .configureOutput({
      writeOut: (text) => (json ? asked.push(text) : output.stdout.write(fitted(text, helpWidth(output)))),
      // Errors are told below, in one form.
      writeErr: (text) => (json || text.startsWith("error:") ? undefined : output.stderr.write(fitted(text, helpWidth(output)))),
    })
    .exitOverride();
  for (const add of [addInspect, addPlan, addLoad, addVerify, addProbe, addSample, addBench, addCompletion]) add(program, context);
  try {
    if (args.length === 0) {
      output.stderr.write(fitted(program.helpInformation(), helpWidth(output)));
      return 64;
    }
    await program.parseAsync(args, { from: "user" });
    return 0;
  } catch (thrown) {
    if (!(thrown instanceof CommanderError && thrown.exitCode === 0)) return tellFailure(thrown, output, json);
    if (json) output.json(thrown.code === "commander.version" ? { version: addonVersion } : { help: asked.join("") });
    return 0;
  }
}

/** Whether the flag is given; behind `--` it would be a path. */
function asksForJson(args: readonly string[]): boolean {
  const end = args.indexOf("--");
  return (end === -1 ? args : args.slice(0, end)).includes("--json");
}
