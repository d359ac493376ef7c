import { type InspectOptions, inspect } from "node:util";

/** The method that `util.inspect`, and so Node's console, asks an object for what to show. */
export const custom: typeof inspect.custom = inspect.custom;

/** What is shown of an object: its class, and the facts that tell it from others. */
export function shownAs(name: string, facts: object, depth: number, options: InspectOptions): string {
  if (depth < 0) return `[${name}]`;
  return `${name} ${inspect(facts, { ...options, depth: options.depth == null ? options.depth : Math.max(depth, 1) })}`;
}

/**
 * Gives plain data a short form for `util.inspect`; nothing that lists, copies or compares its
 * properties meets it.
 */
export function withShortForm<T extends object>(data: T, name: string, facts: (data: T) => object): T {
  return Object.defineProperty(data, custom, {
    value: (depth: number, options: InspectOptions) => shownAs(name, facts(data), depth, options),
  });
}

/** The first few of many, and how many more there are. */
export function firstOf<T, Shown>(items: readonly T[], show: (item: T) => Shown): (Shown | string)[] {
  const shown: (Shown | string)[] = items.slice(0, 3).map(show);
  if (items.length > shown.length) shown.push(`... and ${items.length - shown.length} more`);
  return shown;
}
