/** How an address is written in messages, events and JSON. */
export function addressText(address: unknown): string {
  return typeof address === "bigint" ? `0x${address.toString(16)}` : String(address);
}

/**
 * What `JSON.stringify` writes of a value without failing: addresses (bigint) become hex strings,
 * maps objects, errors what names them.
 */
export function plainData(value: unknown): unknown {
  if (typeof value === "bigint") return addressText(value);
  if (value instanceof Error) return shortOfCause(value);
  if (value instanceof Map) return plainData(Object.fromEntries(value));
  if (Array.isArray(value)) return value.map(plainData);
  if (typeof value !== "object" || value === null || "toJSON" in value) return value;
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, plainData(part)]));
}

/** Name, code and message of an error; of what is none its text. */
export function shortOfCause(cause: unknown): unknown {
  if (!(cause instanceof Error)) return ["object", "function", "symbol"].includes(typeof cause) ? String(cause) : plainData(cause);
  const { name, message } = cause;
  const { code } = cause as NodeJS.ErrnoException;
  return { name, ...(code === undefined ? {} : { code }), message };
}
