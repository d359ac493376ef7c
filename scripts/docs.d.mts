import type { envTable } from "../src/envs.js";
import type { ErrorCodeEntry } from "../src/error-codes.js";

export function environmentMarkdown(table: typeof envTable): string;
export function errorsMarkdown(table: Readonly<Record<string, ErrorCodeEntry>>): string;
