// The check by itself, as a bundle starts it.
import { runCheck } from "./run.mjs";

process.exitCode = await runCheck(process.argv.slice(2));
