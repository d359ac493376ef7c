import { CommanderError } from "commander";
import { type ErrorCode, errorCodes } from "../error-codes.js";
import { hasCode, ModelExpressError } from "../errors.js";
import { namingFlag } from "./options.js";
import { type Output, toJson } from "./output.js";

/** Reason of the abort after a signal. */
export class Interrupted extends Error {
  readonly exit: number;

  constructor(signal: string, exit: number) {
    super(`interrupted by ${signal}`);
    this.name = "Interrupted";
    this.exit = exit;
  }
}

interface Told {
  readonly exit: number;
  readonly code: string;
  readonly message: string;
  readonly remedy?: string;
  readonly facts?: Readonly<Record<string, unknown>>;
  /** Only for faults of this package: a user's mistake needs no stack. */
  readonly stack?: string | undefined;
}

/**
 * Tells an error on stderr, as text or, under `--json`, as one JSON document
 * `{ error: { code, message, remedy, ... } }`, which goes to stdout too unless a result stands
 * there. Returns the exit code.
 */
export function tellFailure(thrown: unknown, output: Output, json: boolean): number {
  const { exit, code, message, remedy, facts, stack } = explain(thrown);
  if (json) {
    const document = { error: { code, message, remedy, exit, ...facts } };
    output.stderr.write(`${toJson(document)}\n`);
    if (!output.hasJson) output.json(document);
    return exit;
  }
  // Lines of the message after its first stand further in than what follows, so that a file's name
  // cannot pass for it.
  const lines = [`mx: ${message.trimEnd().replaceAll(/\r?\n/g, "\n    ")}`];
  if (interruptionOf(thrown) === undefined) lines.push(`  code    ${code}`);
  if (remedy !== undefined) lines.push(`  remedy  ${remedy}`);
  if (stack !== undefined) lines.push(stack);
  output.tell(lines.join("\n"));
  return exit;
}

/** The interruption that an error comes from: the library gives it as the cause of ERR_ABORTED. */
function interruptionOf(thrown: unknown): Interrupted | undefined {
  const reason = hasCode(thrown, "ERR_ABORTED") ? thrown.cause : thrown;
  return reason instanceof Interrupted ? reason : undefined;
}

function explain(thrown: unknown): Told {
  const interruption = interruptionOf(thrown);
  if (interruption !== undefined) return { exit: interruption.exit, code: "INTERRUPTED", message: interruption.message };
  if (thrown instanceof CommanderError) return usage(thrown);
  if (thrown instanceof ModelExpressError) {
    const { exit, remedy } = errorCodes[thrown.code];
    const facts = Object.fromEntries(Object.entries(thrown).filter(([name]) => !["name", "code", "settled"].includes(name)));
    return {
      exit,
      code: thrown.code,
      message: thrown.code.startsWith("ERR_OPTION_") ? namingFlag(thrown.message, facts.option) : thrown.message,
      remedy,
      facts,
      stack: thrown.code === "ERR_INTERNAL" ? thrown.stack : undefined,
    };
  }
  const { exit, remedy } = errorCodes.ERR_INTERNAL;
  const error = thrown instanceof Error ? thrown : new Error(String(thrown));
  return { exit, code: "ERR_INTERNAL", message: error.message, remedy, stack: error.stack };
}

/** Commander's errors are all about the command line. */
function usage({ code, message }: CommanderError): Told {
  const unknown = code === "commander.unknownOption" || code === "commander.unknownCommand";
  const known: ErrorCode = unknown ? "ERR_OPTION_UNKNOWN" : "ERR_OPTION_INVALID";
  return {
    exit: errorCodes[known].exit,
    code: known,
    // The help was asked of what is no command; it has been shown.
    message: code === "commander.help" ? "no such command" : message.replace(/^error: /, ""),
    remedy: "`mx --help` and `mx COMMAND --help` tell what there is.",
  };
}
