import { inspect } from "node:util";

/** Items in rows, found by name: what a {@link LazyMap} is a view of. */
export interface NamedRows<T> {
  readonly count: number;
  /** Row of that name, or -1. */
  rowOf(name: string): number;
  nameOf(row: number): string;
  /** Makes the item of a row; called once per row. */
  make(row: number): T;
}

/**
 * A read-only map whose values are made when they are asked for, and then kept. Iterates in the
 * order of the rows.
 */
export class LazyMap<T> implements ReadonlyMap<string, T> {
  /**
   * @internal A function among the fields: `structuredClone` and `postMessage` refuse it, and quote
   *   it, instead of giving an empty object.
   */
  readonly cannotBeCloned = () => "This map stays in its thread: send an array of what is needed of it";
  readonly #rows: NamedRows<T>;
  readonly #made: (T | undefined)[] = [];

  constructor(rows: NamedRows<T>) {
    this.#rows = rows;
  }

  get size(): number {
    return this.#rows.count;
  }

  has(name: string): boolean {
    return this.#rows.rowOf(name) >= 0;
  }

  get(name: string): T | undefined {
    const row = this.#rows.rowOf(name);
    return row < 0 ? undefined : this.#at(row);
  }

  *keys(): Generator<string, undefined, undefined> {
    for (let row = 0; row < this.#rows.count; row++) yield this.#rows.nameOf(row);
    return undefined;
  }

  *values(): Generator<T, undefined, undefined> {
    for (let row = 0; row < this.#rows.count; row++) yield this.#at(row);
    return undefined;
  }

  *entries(): Generator<[string, T], undefined, undefined> {
    for (let row = 0; row < this.#rows.count; row++) yield [this.#rows.nameOf(row), this.#at(row)];
    return undefined;
  }

  [Symbol.iterator](): Generator<[string, T], undefined, undefined> {
    return this.entries();
  }

  forEach(callback: (value: T, name: string, map: ReadonlyMap<string, T>) => void, thisArgument?: unknown): void {
    for (const [name, value] of this.entries()) callback.call(thisArgument, value, name, this);
  }

  get [Symbol.toStringTag](): string {
    return "LazyMap";
  }

  /** Shows a few entries, so that a log line does not make 92,000 objects. */
  [inspect.custom](_depth: number, options: object): string {
    const shown = Math.min(this.size, 10);
    const entries = Array.from({ length: shown }, (_, row): [string, T] => [this.#rows.nameOf(row), this.#at(row)]);
    const rest = this.size > shown ? ` and ${this.size - shown} more` : "";
    return `LazyMap(${this.size}) ${inspect(new Map(entries), options).replace(/^Map\(\d+\) /, "")}${rest}`;
  }

  #at(row: number): T {
    const made = this.#made[row];
    if (made !== undefined) return made;
    const value = this.#rows.make(row);
    this.#made[row] = value;
    return value;
  }
}
