import type { Command } from "commander";
import { type CompletionShell, completionScript, completionShells } from "../completion.js";
import type { Context } from "../context.js";

const help = `
Commands, flags, names of drivers and the like, and paths are completed. Put the line into ~/.bashrc, ~/.zshrc (after compinit) or
~/.config/fish/config.fish.

Examples:
  source <(mx completion bash)
  source <(mx completion zsh)
  mx completion fish | source`;

export function addCompletion(program: Command, { output }: Context): void {
  const shell = program.createArgument("<shell>", "whose completion").choices(completionShells);
  program
    .command("completion")
    .description("Print a script that makes a shell complete what is typed after mx.")
    .addArgument(shell)
    .addHelpText("after", help)
    .action((name: CompletionShell) => {
      output.stdout.write(completionScript(program, name));
    });
}
