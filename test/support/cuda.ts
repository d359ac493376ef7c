import { join } from "node:path";
import { fakesFolder } from "./fakes.js";

/**
 * The stand-in driver library for this very process, by its path, so that a real one is never taken
 * for it. Call it before anything opens a CUDA driver: settings and ledger are read from the
 * environment when it is loaded. One process has one.
 */
export function standInCuda(settings: { readonly plan?: string; readonly ledger?: string } = {}): string {
  process.env.MX_FAKES = settings.plan ?? "";
  if (settings.ledger !== undefined) process.env.MX_FAKES_LEDGER = settings.ledger;
  return join(fakesFolder(), "libcuda.so.1");
}
