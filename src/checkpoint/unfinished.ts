import { readdir } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { errorOf, type ModelExpressError } from "../errors.js";
import type { Trace } from "./download-traces.js";
import { certainLeftover, controlEndings } from "./leftovers.js";

/** The error for a file whose download is not done. */
export function unfinished(file: string, { path, tool, remedy }: Trace, cause?: unknown): ModelExpressError {
  const what = path === file ? "this is what" : `there is ${path}, as`;
  const message = `${file}: the download is unfinished: ${what} ${tool} leaves until it is done; to finish it, ${remedy}`;
  return errorOf("ERR_CHECKPOINT_DOWNLOAD_UNFINISHED", message, { facts: { file, leftover: path, tool }, cause });
}

/** What downloaders put beside these files while they write them. */
export function controlsOf(files: readonly string[]): string[] {
  return files.flatMap((file) => controlEndings.map((ending) => file + ending));
}

/**
 * Those that are there, by a listing of each folder: that costs less than questions for each of
 * many files, and more than those for a few.
 */
export async function listedControls(files: readonly string[]): Promise<string[]> {
  const folders = [...new Set(files.map((file) => dirname(file)))];
  const listed = folders.map(async (folder) => {
    const names = await readdir(folder).catch(() => []);
    return names.filter((name) => controlEndings.some((ending) => name.endsWith(ending))).map((name) => join(folder, name));
  });
  return (await Promise.all(listed)).flat();
}

/**
 * Refuses files beside which a downloader notes that it is still writing them: they may have their
 * full length, and zeros where bytes are to come.
 * @param there paths of which some are such notes
 * @throws ERR_CHECKPOINT_DOWNLOAD_UNFINISHED
 */
export function requireFinished(files: readonly string[], there: readonly string[]): void {
  if (there.length === 0) return;
  const controls = new Set(there);
  for (const file of files) {
    const control = controlsOf([file]).find((path) => controls.has(path));
    const leftover = control === undefined ? undefined : certainLeftover(basename(control));
    if (control !== undefined && leftover !== undefined) {
      const remedy = `${leftover.remedy}; if the file is complete, remove that one`;
      throw unfinished(file, { ...leftover, path: control, remedy });
    }
  }
}
