import { execFile } from "node:child_process";
import { join } from "node:path";
import type { PreparedCheckpoint } from "./checkpoints.js";
import { programFolder, root } from "./paths.js";
import type { Figures, Trial } from "./rows.js";
import { commandOf } from "./systems.js";

/** The first run of a Rust example builds it. */
const timeoutMs = 300_000;

export interface TrialSetting {
  readonly checkpoint: PreparedCheckpoint | undefined;
  /** Touch and free memory right before the timing. */
  readonly primed: boolean;
  readonly compare: boolean;
}

/**
 * As much as any system needs: twice the checkpoint, for those that copy it once more, and some.
 */
function primeBytes(fileBytes: number): number {
  return 2 * fileBytes + 256 * 2 ** 20;
}

/** Runs one trial in a process of its own. Rejects with what the process said when it fails. */
export function runTrial(trial: Trial, { checkpoint, primed, compare }: TrialSetting): Promise<Figures> {
  const files = checkpoint?.files ?? [];
  const prepare =
    checkpoint === undefined || trial.state === undefined
      ? []
      : [join(programFolder, "machine"), "prepare", trial.state, String(primed ? primeBytes(checkpoint.fileBytes) : 0), ...files];
  const { command, args, env } = commandOf(trial.system, { path: checkpoint?.path ?? "", files, prepare, compare });
  return new Promise((resolve, reject) => {
    const options = { cwd: root, env: { ...ownEnvironment(), ...env }, timeout: timeoutMs, maxBuffer: 1 << 24 };
    execFile(command, args as string[], options, (error, stdout, stderr) => {
      const line = stdout.trimEnd().split("\n").at(-1) ?? "";
      if (error !== null) return reject(new Error(`${trial.title}: ${lastLines(stderr) || error.message}`));
      try {
        resolve(figuresOf(JSON.parse(line)));
      } catch {
        reject(new Error(`${trial.title} printed no figures: ${line}`));
      }
    });
  });
}

/**
 * The process's environment without the product's own variables: it is measured with its defaults.
 */
function ownEnvironment(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("MX_")));
}

/** The numbers of a trial's line; those of an object in it are named `object.number`. */
function figuresOf(value: object, prefix = ""): Figures {
  const figures: Record<string, number> = {};
  for (const [name, entry] of Object.entries(value)) {
    if (typeof entry === "number") figures[prefix + name] = entry;
    else if (typeof entry === "object" && entry !== null) Object.assign(figures, figuresOf(entry, `${prefix}${name}.`));
  }
  return figures;
}

function lastLines(text: string): string {
  return text.trimEnd().split("\n").slice(-3).join(" | ");
}
