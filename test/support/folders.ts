import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { onTestFinished } from "vitest";

/** Root of the clone, with a slash at its end. */
export const root = fileURLToPath(new URL("../../", import.meta.url));

/** An empty folder that goes away with the test that asked for it. */
export function temporaryFolder(): string {
  const folder = makeFolder();
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** A folder with these files, by their paths in it, which goes away likewise. */
export function folderOf(files: Readonly<Record<string, Buffer | string>>): string {
  const folder = temporaryFolder();
  for (const [name, contents] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), contents);
  }
  return folder;
}

/** An empty folder for several tests; the caller removes it (`afterAll`). */
export function makeFolder(): string {
  return mkdtempSync(join(tmpdir(), "modelexpress-test-"));
}

/** The clone's folder for what is built or downloaded and can be made again. */
export function cacheFolder(): string {
  const folder = join(root, ".cache");
  mkdirSync(folder, { recursive: true });
  return folder;
}
