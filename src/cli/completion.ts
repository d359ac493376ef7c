import type { Command, Option } from "commander";

/** Shells that {@link completionScript} knows. */
export const completionShells = ["bash", "zsh", "fish"] as const;
export type CompletionShell = (typeof completionShells)[number];

interface CommandWords {
  readonly name: string;
  readonly description: string;
  readonly options: readonly OptionWords[];
  /** What the arguments can be; undefined for paths. */
  readonly choices: readonly string[] | undefined;
}

interface OptionWords {
  readonly flag: string;
  readonly description: string;
  /** Whether a value follows. */
  readonly takes: boolean;
  /** What the value can be; empty where that is open. */
  readonly choices: readonly string[];
}

/**
 * A script that makes a shell complete commands, flags, the values that are known, and paths. It
 * asks nothing of `mx` when it runs.
 */
export function completionScript(program: Command, shell: CompletionShell): string {
  const help = program.createHelp();
  const commands = help.visibleCommands(program).map((command): CommandWords => {
    const [argument] = command.registeredArguments;
    const names = help.visibleCommands(program).map((each) => each.name());
    return {
      name: command.name(),
      description: command.description(),
      options: help.visibleOptions(command).flatMap(optionWords),
      choices: command.name() === "help" ? names : argument?.argChoices,
    };
  });
  return { bash, zsh, fish }[shell](commands);
}

function optionWords({ long, description, required, optional, argChoices }: Option): OptionWords[] {
  return long == null ? [] : [{ flag: long, description, takes: required || optional, choices: argChoices ?? [] }];
}

/** A word or text as all three shells read it whole. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", "’")}'`;
}

function bash(commands: readonly CommandWords[]): string {
  const values = commands.flatMap(({ name, options }) =>
    options
      .filter(({ takes }) => takes)
      .map(({ flag, choices }) => `    ${quoted(`${name} ${flag}`)}) compopt +o default; words=${quoted(choices.join(" "))} ;;`),
  );
  const flags = commands.map(({ name, options, choices }) => {
    const words = quoted(options.map(({ flag }) => flag).join(" "));
    return choices === undefined
      ? `        ${name}) [[ $cur == -* ]] && words=${words} ;;`
      : `        ${name}) compopt +o default; words=${quoted(choices.join(" "))}; [[ $cur == -* ]] && words=${words} ;;`;
  });
  return `# Completion of mx for bash: source <(mx completion bash)
_mx() {
  local cur=\${COMP_WORDS[COMP_CWORD]} prev=\${COMP_WORDS[COMP_CWORD-1]} command= words= word
  [[ $cur == "=" ]] && cur=
  [[ $prev == "=" ]] && prev=\${COMP_WORDS[COMP_CWORD-2]}
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    [[ $word == -* ]] || { command=$word; break; }
  done
  case "$command $prev" in
${values.join("\n")}
    *)
      case $command in
        '') compopt +o default; words=${quoted(commands.map(({ name }) => name).join(" "))} ;;
${flags.join("\n")}
      esac ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -F _mx mx
`;
}

function zsh(commands: readonly CommandWords[]): string {
  /** Colons and brackets end a description there. */
  const told = (text: string) => text.replace(/[[\]:\\]/g, "\\$&");
  const specs = ({ options, choices }: CommandWords) => [
    ...options.map(({ flag, description, takes, choices: values }) =>
      quoted(`*${flag}[${told(description)}]${takes ? `:value:(${values.join(" ")})` : ""}`),
    ),
    quoted(choices === undefined ? "*:path:_files" : `*:word:(${choices.join(" ")})`),
  ];
  return `#compdef mx
# Completion of mx for zsh: source <(mx completion zsh), after compinit
_mx() {
  local -a commands
  commands=(${commands.map(({ name, description }) => quoted(`${name}:${told(description)}`)).join(" ")})
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  shift words
  (( CURRENT-- ))
  case $words[1] in
${commands.map((command) => `    ${command.name}) _arguments ${specs(command).join(" ")} ;;`).join("\n")}
  esac
}
compdef _mx mx
`;
}

function fish(commands: readonly CommandWords[]): string {
  const first = commands.map(
    ({ name, description }) => `complete -c mx -n __fish_use_subcommand -f -a ${quoted(name)} -d ${quoted(description)}`,
  );
  const rest = commands.flatMap(({ name, options, choices }) => {
    const within = `complete -c mx -n ${quoted(`__fish_seen_subcommand_from ${name}`)}`;
    const words = choices === undefined ? [] : [`${within} -f -a ${quoted(choices.join(" "))}`];
    const flags = options.map(({ flag, description, takes, choices: values }) => {
      const value = takes ? ` -x -a ${quoted(values.join(" "))}` : "";
      return `${within} -l ${flag.slice(2)} -d ${quoted(description)}${value}`;
    });
    return [...words, ...flags];
  });
  return `# Completion of mx for fish: mx completion fish | source\n${[...first, ...rest].join("\n")}\n`;
}
