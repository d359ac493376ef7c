import { readFileSync } from "node:fs";

/**
 * Text of a small file of the kernel, or undefined where it is not there or may not be read. Tests
 * put their own in its place.
 */
export type ReadText = (path: string) => string | undefined;

export function readText(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
}
