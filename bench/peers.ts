import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { peerFolder, python, venvFolder } from "./paths.js";
import type { Trial } from "./rows.js";
import { systemOf } from "./systems.js";

/**
 * Makes a virtual environment with all peers, about 7 GB on disk: torch for Linux comes with CUDA.
 */
export function installPeers(): void {
  const show = { stdio: "inherit" } as const;
  if (!existsSync(python)) execFileSync("python3", ["-m", "venv", venvFolder], show);
  execFileSync(python, ["-m", "pip", "install", "--requirement", join(peerFolder, "requirements.txt")], show);
  // Of this one only the arena is measured, which needs none of its dependencies.
  execFileSync(python, ["-m", "pip", "install", "--no-deps", "modelexpress==0.7.0"], show);
}

/** Why a peer cannot be measured here, if it cannot. */
export function whyNotInstalled(trial: Trial, versions: Readonly<Record<string, string>>): string | undefined {
  const system = systemOf(trial.system);
  if (!("python" in system)) return undefined;
  if (!existsSync(python)) return "the peers are not installed: npm run bench -- --install-peers";
  const missing = system.needs.filter((name) => versions[name] === undefined);
  return missing.length === 0 ? undefined : `not installed: ${missing.join(", ")}`;
}
