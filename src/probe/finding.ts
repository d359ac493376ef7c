import { publish } from "../events.js";

/** Raw values behind a finding, for programs. */
export type FindingFacts = Readonly<Record<string, string | number | boolean | null>>;

/** One thing that this machine offers, or not. Plain data. */
export interface Finding {
  readonly name: string;
  /** Null where it could not be found out. */
  readonly found: boolean | null;
  /** What was found, or why not, in one line. */
  readonly why: string;
  /** What to do about it; null where nothing has to be done. */
  readonly remedy: string | null;
  readonly facts: FindingFacts;
}

export function found(name: string, why: string, facts: FindingFacts = {}): Finding {
  return Object.freeze({ name, found: true, why, remedy: null, facts: Object.freeze(facts) });
}

export function missing(name: string, why: string, remedy: string, facts: FindingFacts = {}): Finding {
  return Object.freeze({ name, found: false, why, remedy, facts: Object.freeze(facts) });
}

export function unknown(name: string, why: string, remedy: string | null = null, facts: FindingFacts = {}): Finding {
  return Object.freeze({ name, found: null, why, remedy, facts: Object.freeze(facts) });
}

/** Publishes the reason of each that is missing. */
export function publishMissing(findings: readonly Finding[]): void {
  for (const { name, found: isFound, why, remedy } of findings) {
    if (isFound === false) publish({ event: "probe.reason", name, why, remedy });
  }
}
