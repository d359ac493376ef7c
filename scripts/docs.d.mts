import type { envTable } from "../src/envs.js";
import type { ErrorCodeEntry } from "../src/error-codes.js";
import type { ucxSettings } from "../src/transfer/nixl/ucx-settings.js";

export function environmentMarkdown(table: typeof envTable, settings: typeof ucxSettings): string;
export function errorsMarkdown(table: Readonly<Record<string, ErrorCodeEntry>>): string;
