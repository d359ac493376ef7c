import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { environmentMarkdown, errorsMarkdown } from "../../scripts/docs.mjs";
import { envTable } from "../../src/envs.js";
import { errorCodes } from "../../src/error-codes.js";
import { ucxSettings } from "../../src/transfer/nixl/ucx-settings.js";
import { root } from "../support/folders.js";

describe("generated documents are up to date (else: npm run build && npm run docs)", () => {
  it.each([
    ["docs/environment.md", environmentMarkdown(envTable, ucxSettings)],
    ["docs/errors.md", errorsMarkdown(errorCodes)],
  ])("%s", (file, text) => {
    expect(readFileSync(join(root, file), "utf8")).toBe(text);
  });
});

it("explain every exit code that an error ends with", () => {
  const [, exits = ""] = errorsMarkdown(errorCodes).split("## Exit codes");
  for (const exit of new Set(Object.values(errorCodes).map((entry) => entry.exit))) expect(exits).toContain(`| ${exit} |`);
});
