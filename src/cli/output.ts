import { entryOf } from "../columns.js";
import { addressText } from "../plain-data.js";
import { fitted } from "./wrapped.js";

/** Where text goes: a standard stream, or a collector in tests. */
export interface TextStream {
  write(text: string): unknown;
  readonly isTTY?: boolean;
  /** Width of a terminal. */
  readonly columns?: number;
  on?(event: "error", listener: (error: NodeJS.ErrnoException) => void): unknown;
}

/** A column of a table: numbers stand to the right. */
export interface Column {
  readonly title: string;
  readonly right?: boolean;
}

/**
 * The one writer of all commands: results go to stdout as text or as one JSON document, everything
 * else to stderr.
 */
export class Output {
  readonly stdout: TextStream;
  readonly stderr: TextStream;
  #documents = 0;

  constructor(stdout: TextStream, stderr: TextStream) {
    this.stdout = stdout;
    this.stderr = stderr;
    // A reader that has seen enough (`mx inspect ... | head`) is no failure.
    stdout.on?.("error", ({ code }) => process.exit(code === "EPIPE" ? 0 : 74));
    stderr.on?.("error", () => {});
  }

  /**
   * Text for people on stderr, in lines that fit a terminal's width. Its line breaks are kept;
   * anything else that steers a terminal is shown instead.
   */
  tell(text: string): void {
    const lines = text.split("\n").map(printable);
    this.stderr.write(`${fitted(lines.join("\n"), this.stderr.isTTY === true ? this.stderr.columns : undefined)}\n`);
  }

  /** One JSON document: addresses (bigint) as hex strings, maps as objects. */
  json(value: unknown): void {
    this.#documents += 1;
    this.stdout.write(`${toJson(value)}\n`);
  }

  /** Whether a JSON document stands on stdout. */
  get hasJson(): boolean {
    return this.#documents > 0;
  }

  line(text = ""): void {
    this.stdout.write(`${printable(text)}\n`);
  }

  /** Lines `name  value`, the values below each other. Pairs without a value are left out. */
  pairs(pairs: readonly (readonly [string, string | undefined])[]): void {
    const shown = pairs.filter(([, value]) => value !== undefined);
    const width = Math.max(...shown.map(([name]) => name.length));
    for (const [name, value] of shown) this.line(`${name.padEnd(width)}  ${value}`);
  }

  table(columns: readonly Column[], rows: readonly (readonly string[])[]): void {
    const cells = [columns.map(({ title }) => title), ...rows].map((row) => row.map(printable));
    const widths = columns.map((_, i) => cells.reduce((width, row) => Math.max(width, row[i]?.length ?? 0), 0));
    const text = cells.map((row) =>
      columns
        .map(({ right }, i) => pad(row[i] ?? "", entryOf(widths, i), right))
        .join("  ")
        .trimEnd(),
    );
    this.stdout.write(text.map((line) => `${line}\n`).join(""));
  }
}

function pad(text: string, width: number, right = false): string {
  return right ? text.padStart(width) : text.padEnd(width);
}

export function toJson(value: unknown): string {
  return JSON.stringify(value, (_, part: unknown) => {
    if (typeof part === "bigint") return addressText(part);
    return part instanceof Map ? Object.fromEntries(part) : part;
  });
}

/**
 * Text that a terminal shows as it is: control characters and changes of direction, which a hostile
 * file may put into names, become escapes.
 */
export function printable(text: string): string {
  return text.replace(/[\p{Cc}\u202a-\u202e\u2066-\u2069]/gu, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
