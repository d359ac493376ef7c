import { isAbsolute, resolve } from "node:path";
import { errorOf } from "../errors.js";

/**
 * The path made absolute by the working directory, which may have been removed meanwhile.
 * @throws ERR_CHECKPOINT_NOT_FOUND
 */
export function absolutePath(path: string): string {
  if (isAbsolute(path)) return resolve(path);
  let base: string;
  try {
    base = process.cwd();
  } catch (cause) {
    const errno = (cause as NodeJS.ErrnoException).code ?? "unknown";
    const message = `${path}: this path is relative, and the working directory of this process is gone (${errno}); give an absolute path`;
    throw errorOf("ERR_CHECKPOINT_NOT_FOUND", message, { facts: { file: path, operation: "getcwd", errno }, cause });
  }
  return resolve(base, path);
}
