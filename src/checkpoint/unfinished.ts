import { access, readdir } from "node:fs/promises";
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

/**
 * Refuses files beside which a downloader notes that it is still writing them: they may have their full length, and zeros where bytes are to come.
 * @throws ERR_CHECKPOINT_DOWNLOAD_UNFINISHED
 */
export async function requireFinished(files: readonly string[]): Promise<void> {
  const folders = new Set(files.map((file) => dirname(file)));
  // One listing of a folder costs less than questions for each of many files, but more than those for one: it may hold thousands.
  const controls = files.length > 4 ? await listedControls(folders) : await askedControls(files);
  for (const file of files) {
    const control = controlEndings.map((ending) => file + ending).find((path) => controls.has(path));
    const leftover = control === undefined ? undefined : certainLeftover(basename(control));
    if (control !== undefined && leftover !== undefined) {
      const remedy = `${leftover.remedy}; if the file is complete, remove that one`;
      throw unfinished(file, { ...leftover, path: control, remedy });
    }
  }
}

async function isThere(path: string): Promise<boolean> {
  return await access(path).then(
    () => true,
    () => false,
  );
}

async function listedControls(folders: ReadonlySet<string>): Promise<Set<string>> {
  const listed = [...folders].map(async (folder) => {
    const names = await readdir(folder).catch(() => []);
    return names.filter((name) => controlEndings.some((ending) => name.endsWith(ending))).map((name) => join(folder, name));
  });
  return new Set((await Promise.all(listed)).flat());
}

async function askedControls(files: readonly string[]): Promise<Set<string>> {
  const paths = files.flatMap((file) => controlEndings.map((ending) => file + ending));
  const there = await Promise.all(paths.map(isThere));
  return new Set(paths.filter((_, i) => there[i]));
}
