/**
 * Text in lines of at most so many characters, cut between words; a word that is longer, such as a
 * path, stays whole.
 */
export function wrapped(text: string, width: number): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(/\s+/)) {
    if (line !== "" && line.length + 1 + word.length > width) {
      lines.push(line);
      line = word;
    } else {
      line = line === "" ? word : `${line} ${word}`;
    }
  }
  return [...lines, line];
}

/**
 * Narrower columns are not filled: a word a line reads worse than a line that the terminal breaks.
 */
const minColumn = 20;

/**
 * Lines of a text that stand in a terminal of so many columns: longer ones are cut between words
 * and go on below their last column, or two further in where they have one column only.
 */
export function fitted(text: string, width = Number.POSITIVE_INFINITY): string {
  return text
    .split("\n")
    .map((line) => (line.length <= width ? line : fittedLine(line, width)))
    .join("\n");
}

function fittedLine(line: string, width: number): string {
  const columns = /^(.*\S {2,})\S/.exec(line)?.[1];
  const indent = /^ */.exec(line)?.[0] ?? "";
  const hung = columns !== undefined && width - columns.length >= minColumn;
  const head = hung ? columns : indent;
  const rest = hung ? " ".repeat(columns.length) : `${indent}  `;
  const [first = "", ...others] = wrapped(line.slice(head.length), width - rest.length);
  return [`${head}${first}`, ...others.map((other) => `${rest}${other}`)].join("\n");
}
