import { optionInvalid } from "../arguments.js";

/** True when a string is read as a glob and not as a name. */
export function isGlob(text: string): boolean {
  return /[*?[\]{}\\]/.test(text);
}

/**
 * The regular expression of a glob over whole tensor names. Names are dotted, not slashed: `*`
 * matches any run of characters, dots and slashes too, `?` one character, `[a-z]` and `[!a-z]` one
 * of a set or none of it, `{a,b}` either alternative (they nest), and a backslash takes the next
 * character as it is.
 * @throws ERR_OPTION_INVALID for a set or an alternative that is not closed, naming the option
 */
export function globToRegExp(glob: string, option: string): RegExp {
  const characters = [...glob];
  let source = "";
  let depth = 0;
  for (let at = 0; at < characters.length; at++) {
    const character = characters[at] ?? "";
    if (character === "*") {
      // A second star would only make the expression slower.
      if (!source.endsWith("[^]*")) source += "[^]*";
    } else if (character === "?") {
      source += "[^]";
    } else if (character === "[") {
      const end = setEnd(characters, at);
      if (end === -1) throw optionInvalid(option, 'a glob whose every "[" is closed by "]" (write "\\[" for the character)', glob);
      source += setSource(characters.slice(at + 1, end), glob, option);
      at = end;
    } else if (character === "{") {
      depth++;
      source += "(?:";
    } else if (character === "}" && depth > 0) {
      depth--;
      source += ")";
    } else if (character === "," && depth > 0) {
      source += "|";
    } else if (character === "\\") {
      at++;
      const next = characters[at];
      if (next === undefined) throw optionInvalid(option, "a glob that does not end in a backslash", glob);
      source += literal(next);
    } else {
      source += literal(character);
    }
  }
  if (depth > 0) throw optionInvalid(option, 'a glob whose every "{" is closed by "}" (write "\\{" for the character)', glob);
  return new RegExp(`^(?:${source})$`, "u");
}

function literal(character: string): string {
  return /[\\^$.*+?()[\]{}|/-]/.test(character) ? `\\${character}` : character;
}

/**
 * Index of the bracket that closes the set opened at `open`, or -1. A bracket right after the
 * opening is a member of the set.
 */
function setEnd(characters: readonly string[], open: number): number {
  const first = characters[open + 1] === "!" || characters[open + 1] === "^" ? open + 2 : open + 1;
  for (let at = first; at < characters.length; at++) {
    if (characters[at] === "\\") at++;
    else if (characters[at] === "]" && at > first) return at;
  }
  return -1;
}

function setSource(members: readonly string[], glob: string, option: string): string {
  const negated = members[0] === "!" || members[0] === "^";
  let source = negated ? "[^" : "[";
  for (let at = negated ? 1 : 0; at < members.length; at++) {
    let from = members[at] ?? "";
    if (from === "\\") from = members[++at] ?? "\\";
    if (members[at + 1] !== "-" || at + 2 >= members.length) {
      source += literal(from);
      continue;
    }
    at += 2;
    let to = members[at] ?? "";
    if (to === "\\") to = members[++at] ?? "\\";
    if ((from.codePointAt(0) ?? 0) > (to.codePointAt(0) ?? 0)) {
      throw optionInvalid(option, `a glob whose ranges ascend (${from}-${to} does not)`, glob);
    }
    source += `${literal(from)}-${literal(to)}`;
  }
  return `${source}]`;
}
