import { getSystemErrorMap } from "node:util";
import type { ErrorCode } from "../error-codes.js";
import { errorOf, type ModelExpressError } from "../errors.js";

const codes: Readonly<Record<string, ErrorCode>> = {
  ENOENT: "ERR_CHECKPOINT_NOT_FOUND",
  ENOTDIR: "ERR_CHECKPOINT_NOT_FOUND",
  EACCES: "ERR_CHECKPOINT_PERMISSION",
  EPERM: "ERR_CHECKPOINT_PERMISSION",
};

/**
 * The error for a failed call of `node:fs` on a file or folder of a checkpoint, `operation`, which
 * becomes a fact. The message says in plain words what is the matter with the path; `hint` ends it.
 */
export function fsError(path: string, operation: "read" | "readdir", cause: unknown, hint = ""): ModelExpressError {
  const errno = errnoOf(cause);
  const code = (Object.hasOwn(codes, errno) ? codes[errno] : undefined) ?? "ERR_CHECKPOINT_IO";
  return errorOf(code, `${path}: ${whatIsWrong(code, operation, cause)} (${errno})${hint}`, {
    facts: { file: path, operation, errno },
    cause,
  });
}

function whatIsWrong(code: ErrorCode, operation: "read" | "readdir", cause: unknown): string {
  const isFolder = operation === "readdir";
  if (code === "ERR_CHECKPOINT_PERMISSION") return isFolder ? "this user may not list this folder" : "this user may not read this file";
  if (code !== "ERR_CHECKPOINT_NOT_FOUND") return `this ${isFolder ? "folder cannot be listed" : "file cannot be read"}: ${meaning(cause)}`;
  return errnoOf(cause) === "ENOTDIR" ? "no such file or folder: a part of the path is a file" : "no such file or folder";
}

/** Symbolic errno of an error of Node's, such as `EIO`. */
export function errnoOf(cause: unknown): string {
  return (cause as NodeJS.ErrnoException | undefined)?.code ?? "unknown";
}

/** What an errno means, in the words of the system. */
export function meaning(cause: unknown): string {
  const { errno, message } = cause as NodeJS.ErrnoException;
  return (errno === undefined ? undefined : getSystemErrorMap().get(errno)?.[1]) ?? message;
}
