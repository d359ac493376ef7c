#!/usr/bin/env node
import { Interrupted } from "./failure.js";
import { finish } from "./finish.js";
import { Output } from "./output.js";
import { runCli } from "./program.js";

/**
 * Work that an interrupt finds stuck is left behind after so long: on a dead mount it may never
 * end.
 */
const patienceMs = 2000;

const controller = new AbortController();
for (const [signal, exit] of [
  ["SIGINT", 130],
  ["SIGTERM", 143],
] as const) {
  // The first signal stops the work in good order; a second one finds the default behaviour, and
  // kills.
  process.once(signal, () => {
    controller.abort(new Interrupted(signal, exit));
    setTimeout(() => process.exit(exit), patienceMs).unref();
  });
}

const output = new Output(process.stdout, process.stderr);
await finish(await runCli(process.argv.slice(2), { output, signal: controller.signal }));
