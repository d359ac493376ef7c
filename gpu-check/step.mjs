// Runs one step in this process: `node step.mjs NAME OPTIONS`. Answers go to descriptor 3 as they
// come.
import { writeSync } from "node:fs";
import { open, Skip } from "./support.mjs";

const [name, options] = process.argv.slice(2);
const answer = (what, facts) => writeSync(3, `${JSON.stringify({ what, ...facts })}\n`);

async function run() {
  const { default: body } = await import(`./steps/${name.replace(/^load-.*/, "load")}.mjs`);
  const opened = [];
  try {
    await body({ ...JSON.parse(options), name, answer, open: (resource) => open(opened, resource) });
  } finally {
    for (const resource of opened.reverse()) await (resource[Symbol.asyncDispose] ?? resource[Symbol.dispose]).call(resource);
  }
}

try {
  await run();
  process.exit(0);
} catch (error) {
  if (!(error instanceof Skip)) console.error(error.stack);
  // Last, as the report quotes the end of the log.
  console.error(`${error.code === undefined ? "" : `${error.code}: `}${error.message}`);
  process.exit(error instanceof Skip ? 69 : 1);
}
