import type { NixlApiOptions } from "../transfer/nixl/api.js";
import { gdsLooks, lookAt } from "./gds.js";
import type { GdsMessage } from "./gds-process.js";
import { thisMachine } from "./machine.js";

/**
 * Program of the process that gds-process.ts starts: looks from a number on, and tells before and
 * after each look.
 */
async function main(from: number, options: NixlApiOptions): Promise<void> {
  for (const look of gdsLooks.slice(from)) {
    await tell({ looking: look.name });
    await tell({ finding: await lookAt(look, options, thisMachine) });
  }
}

/** Waits until it is out: the next look may end this process. */
function tell(message: GdsMessage): Promise<void> {
  return new Promise((resolve) => process.send?.(message, () => resolve()));
}

await main(Number(process.argv[2]), JSON.parse(process.argv[3] ?? "{}") as NixlApiOptions);
process.disconnect?.();
