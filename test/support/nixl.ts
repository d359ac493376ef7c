import { existsSync } from "node:fs";
import { describe } from "vitest";
import { nixlLibrary } from "../../scripts/nixl.mjs";

const missing = existsSync(nixlLibrary) ? undefined : `the real NIXL is not at ${nixlLibrary}: run \`node scripts/nixl.mjs\``;
if (missing !== undefined && process.env.CI === "true") throw new Error(missing);

/** Tests that need the real NIXL, whose library is `library`. Skipped with the reason where it was not fetched; under CI=true an error. */
export function describeNixl(name: string, tests: (library: string) => void): void {
  if (missing === undefined) describe(name, () => tests(nixlLibrary));
  else describe.skip(`${name} (${missing})`, () => tests(nixlLibrary));
}
