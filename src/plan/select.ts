import { types } from "node:util";
import { describe, optionInvalid } from "../arguments.js";
import { nearNames } from "../checkpoint/near-names.js";
import { quotedName } from "../checkpoint/unknown-tensor.js";
import { errorOf } from "../errors.js";
import { globToRegExp, isGlob } from "./glob.js";
import type { PlanSource } from "./source.js";

/**
 * Picks tensors: a glob (a name where it has none of `* ? [ ] { } \`), a regular expression, a
 * function, or several of them (any may match).
 */
export type NameSelector = NamePattern | readonly NamePattern[];
export type NamePattern = string | RegExp | ((name: string) => boolean);

/**
 * Rows of the tensors that `include` picks (default: all) and `exclude` does not, ascending.
 * @throws ERR_PLAN_TENSOR_UNKNOWN when a name is unknown, or a glob or regular expression of
 *   `include` matches nothing; ERR_OPTION_INVALID for a malformed selector
 */
export function selectRows(source: PlanSource, include: NameSelector | undefined, exclude: NameSelector | undefined): Uint32Array {
  const count = source.columns.count;
  if (include === undefined && exclude === undefined) return allRows(count);
  const picked = include === undefined ? new Uint8Array(count).fill(1) : matches(source, include, "include");
  if (exclude !== undefined) {
    const dropped = matches(source, exclude, "exclude");
    for (let row = 0; row < count; row++) if (dropped[row] === 1) picked[row] = 0;
  }
  const rows = new Uint32Array(count);
  let length = 0;
  for (let row = 0; row < count; row++) if (picked[row] === 1) rows[length++] = row;
  return rows.slice(0, length);
}

/**
 * Checks a selector as far as that needs no checkpoint.
 * @throws ERR_OPTION_INVALID
 */
export function requireSelector(option: string, selector: NameSelector | undefined): void {
  if (selector === undefined) return;
  for (const pattern of patternsOf(selector, option)) tester(pattern, option);
}

function patternsOf(selector: NameSelector, option: string): readonly unknown[] {
  const patterns: readonly unknown[] = Array.isArray(selector) ? selector : [selector];
  if (patterns.length === 0) throw optionInvalid(option, "a name, glob, RegExp or function, or an array of at least one", selector);
  return patterns;
}

function allRows(count: number): Uint32Array {
  const rows = new Uint32Array(count);
  for (let row = 0; row < count; row++) rows[row] = row;
  return rows;
}

/** One entry per tensor: 1 where the selector matches it. */
function matches(source: PlanSource, selector: NameSelector, option: string): Uint8Array {
  const matched = new Uint8Array(source.columns.count);
  for (const pattern of patternsOf(selector, option)) {
    if (typeof pattern === "string" && !isGlob(pattern)) {
      const row = source.rowOf(pattern);
      if (row === -1) throw unknownName(source, pattern, option);
      matched[row] = 1;
    } else {
      matchEach(source, tester(pattern, option), matched, pattern, option);
    }
  }
  return matched;
}

function tester(pattern: unknown, option: string): (name: string) => boolean {
  if (typeof pattern === "string") {
    const expression = globToRegExp(pattern, option);
    return (name) => expression.test(name);
  }
  if (types.isRegExp(pattern)) {
    // A global or sticky expression carries its position from one test to the next; the caller's
    // own stays as it is.
    const expression = new RegExp(pattern.source, pattern.flags);
    return (name) => {
      expression.lastIndex = 0;
      return expression.test(name);
    };
  }
  if (typeof pattern === "function") {
    return (name) => {
      const answer: unknown = pattern(name);
      if (typeof answer !== "boolean")
        throw optionInvalid(option, `a function that answers true or false (asked for ${describe(name)})`, answer);
      return answer;
    };
  }
  throw optionInvalid(option, "a name, glob, RegExp or function, or an array of them", pattern);
}

function matchEach(source: PlanSource, test: (name: string) => boolean, matched: Uint8Array, pattern: unknown, option: string): void {
  let found = false;
  for (let row = 0; row < matched.length; row++) {
    if (test(source.nameOf(row))) {
      matched[row] = 1;
      found = true;
    }
  }
  // What is to be left out may not be there; what is wanted must be.
  if (!found && option === "include" && typeof pattern !== "function") throw unknownPattern(source, pattern, option);
}

function unknownName(source: PlanSource, name: string, option: string): Error {
  const near = nearNames(name, namesOf(source));
  const hint = near.length > 0 ? `did you mean ${near.map(quotedName).join(", ")}?` : examples(source);
  return errorOf("ERR_PLAN_TENSOR_UNKNOWN", `${option}: there is no tensor ${quotedName(name)} in ${source.path}; ${hint}`, {
    facts: { option, tensor: name, near },
  });
}

function unknownPattern(source: PlanSource, pattern: unknown, option: string): Error {
  const literal = typeof pattern === "string" && source.rowOf(pattern) !== -1;
  const hint = literal ? "there is a tensor of exactly that name: put a backslash before each of its glob characters" : examples(source);
  const shown = typeof pattern === "string" ? quotedName(pattern) : String(pattern);
  return errorOf("ERR_PLAN_TENSOR_UNKNOWN", `${option}: ${shown} matches no tensor in ${source.path}; ${hint}`, {
    facts: { option, pattern: String(pattern) },
  });
}

function* namesOf(source: PlanSource): Generator<string> {
  for (let row = 0; row < source.columns.count; row++) yield source.nameOf(row);
}

function examples(source: PlanSource): string {
  const names = Array.from({ length: Math.min(3, source.columns.count) }, (_, row) => quotedName(source.nameOf(row)));
  return names.length === 0 ? "it has no tensors" : `its names look like ${names.join(", ")}`;
}
