import { errorOf, type ModelExpressError } from "../errors.js";
import { nearNames } from "./near-names.js";

/**
 * The error for a name that is not there, with those that may have been meant. `where` names the
 * place: a path, or what was loaded of it.
 */
export function unknownTensor(name: unknown, names: ReadonlyMap<string, unknown>, where: string): ModelExpressError {
  if (typeof name !== "string") {
    return errorOf("ERR_TENSOR_UNKNOWN", `a tensor's name is a string, got ${typeof name}`);
  }
  const near = nearNames(name, names.keys());
  const hint = near.length > 0 ? `did you mean ${near.map(quotedName).join(", ")}?` : examples(names);
  return errorOf("ERR_TENSOR_UNKNOWN", `there is no tensor ${quotedName(name)} in ${where}; ${hint}`, { facts: { tensor: name, near } });
}

/** A tensor's name for a message: of a length that can be read. */
export function quotedName(name: string): string {
  return JSON.stringify(name.length > 120 ? `${name.slice(0, 119)}…` : name);
}

function examples(names: ReadonlyMap<string, unknown>): string {
  const shown: string[] = [];
  for (const name of names.keys()) {
    if (shown.push(quotedName(name)) === 3) break;
  }
  return shown.length === 0 ? "it has no tensors" : `its names look like ${shown.join(", ")}`;
}
