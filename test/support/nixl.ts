import { existsSync } from "node:fs";
import { describe } from "vitest";
import { nixlLibrary } from "../../scripts/nixl.mjs";

export { nixlLibrary };

/** Why the tests that need the real NIXL cannot run; undefined where they can. */
export const nixlMissing = existsSync(nixlLibrary) ? undefined : `the real NIXL is not at ${nixlLibrary}: run \`node scripts/nixl.mjs\``;
if (nixlMissing !== undefined && process.env.CI === "true") throw new Error(nixlMissing);

/**
 * Tests that need the real NIXL, whose library is `library`. Skipped with the reason where it was
 * not fetched; under CI=true an error.
 */
export function describeNixl(name: string, tests: (library: string) => void): void {
  if (nixlMissing === undefined) describe(name, () => tests(nixlLibrary));
  else describe.skip(`${name} (${nixlMissing})`, () => tests(nixlLibrary));
}
