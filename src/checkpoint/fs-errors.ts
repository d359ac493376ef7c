import type { ErrorCode } from "../error-codes.js";
import { errorOf, type ModelExpressError } from "../errors.js";

const codes: Readonly<Record<string, ErrorCode>> = {
  ENOENT: "ERR_CHECKPOINT_NOT_FOUND",
  ENOTDIR: "ERR_CHECKPOINT_NOT_FOUND",
  EACCES: "ERR_CHECKPOINT_PERMISSION",
  EPERM: "ERR_CHECKPOINT_PERMISSION",
};

/** The error for a failed call of `node:fs` on a file or folder of a checkpoint. `hint` ends the message. */
export function fsError(path: string, operation: string, cause: unknown, hint = ""): ModelExpressError {
  const errno = (cause as NodeJS.ErrnoException | undefined)?.code ?? "unknown";
  const code = (Object.hasOwn(codes, errno) ? codes[errno] : undefined) ?? "ERR_CHECKPOINT_IO";
  const what = code === "ERR_CHECKPOINT_NOT_FOUND" ? "no such file or folder" : `cannot ${operation} it`;
  return errorOf(code, `${path}: ${what}: ${operation} failed with ${errno}${hint}`, { facts: { file: path, operation, errno }, cause });
}
