import { access, constants } from "node:fs/promises";
import { dirname } from "node:path";
import type { ErrorCode } from "../error-codes.js";
import { CheckpointError, errorOf } from "../errors.js";
import { traceOf } from "./download-traces.js";
import { unfinished } from "./unfinished.js";

/** Failures that an unfinished download may explain. */
const explainable: ReadonlySet<ErrorCode> = new Set([
  "ERR_CHECKPOINT_NOT_FOUND",
  "ERR_CHECKPOINT_SHARD_MISSING",
  "ERR_CHECKPOINT_FILE_TOO_SMALL",
  "ERR_CHECKPOINT_FILE_TRUNCATED",
  "ERR_CHECKPOINT_HEADER_TRUNCATED",
  "ERR_CHECKPOINT_HEADER_TOO_LARGE",
  "ERR_CHECKPOINT_HEADER_NOT_JSON",
  "ERR_CHECKPOINT_INDEX_INVALID",
]);

/**
 * What is told of a failed opening: the failure itself, or with what the disk says about its
 * reason. A download may have left a trace of what is missing or too short, a folder above may
 * refuse this user, a name may be none that Node can spell.
 */
export async function explained(failure: unknown): Promise<unknown> {
  if (!(failure instanceof CheckpointError) || failure.file === undefined) return failure;
  const { file, code } = failure;
  const trace = explainable.has(code) ? await traceOf(file, code) : undefined;
  if (trace !== undefined) return unfinished(file, trace, failure);
  const hint = await pathHint(failure, file);
  // The error's own fields are its facts.
  return hint === undefined ? failure : errorOf(code, `${failure.message}; ${hint}`, { facts: { ...failure }, cause: failure.cause });
}

async function pathHint({ code, operation }: CheckpointError, file: string): Promise<string | undefined> {
  if (code === "ERR_CHECKPOINT_NOT_FOUND" && file.includes("\ufffd")) {
    return "the path holds U+FFFD, which stands for bytes that are no UTF-8: rename what has them in its name, or go there by a symbolic link";
  }
  if (code !== "ERR_CHECKPOINT_PERMISSION") return undefined;
  const closed = await closedFolder(file);
  if (closed !== undefined) return `the folder ${closed} may not be searched by this user (execute permission)`;
  return operation === "readdir" ? "its files can be given by their own paths, if they are known" : undefined;
}

/** The topmost folder above the file that this user may not search. */
async function closedFolder(file: string): Promise<string | undefined> {
  const folders: string[] = [];
  for (let folder = dirname(file); folders.at(-1) !== folder; folder = dirname(folder)) folders.push(folder);
  for (const folder of folders.reverse()) {
    const errno = await access(folder, constants.X_OK).then(
      () => undefined,
      (error: NodeJS.ErrnoException) => error.code,
    );
    if (errno === "EACCES") return folder;
  }
  return undefined;
}
