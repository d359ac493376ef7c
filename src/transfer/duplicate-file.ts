import type { FileHandle } from "node:fs/promises";
import { errorOf } from "../errors.js";
import type { NativeFile } from "../native/addon.js";
import { callNative } from "../native/failure.js";
import { addon } from "../native/load.js";

/**
 * A descriptor of one's own for an open file, at once: the caller may close his. @throws
 * ERR_OPTION_INVALID, ERR_TRANSFER_OPEN
 */
export function duplicateFile(caller: string, file: number | FileHandle): NativeFile {
  const fd = typeof file === "object" && file !== null ? file.fd : file;
  if (!Number.isInteger(fd) || fd < 0 || fd >= 2 ** 31) {
    throw errorOf("ERR_OPTION_INVALID", `${caller}: file must be an open descriptor, a FileHandle or a path, it is ${String(fd)}`, {
      facts: { option: "file", value: fd },
    });
  }
  return callNative(() => addon().duplicateFile(fd));
}
