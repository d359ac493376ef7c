// Writes what the documentation takes from tables of the code: docs/environment.md and
// docs/errors.md. Needs the build (dist/).
import { writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

/** docs/environment.md from the table of src/envs.ts and the settings of UCX. */
export function environmentMarkdown(envTable, settings) {
  return `# Environment

Every variable that the package reads. An option that is given wins over its variable; an empty variable counts as unset; a value that is not
allowed is \`ERR_ENV_INVALID\`. This file is generated from \`src/envs.ts\` by \`npm run docs\`.

${table(
  ["variable", "unit", "takes", "default", "meaning"],
  Object.values(envTable).map(({ name, unit, takes, defaultMeaning, meaning }) => [`\`${name}\``, unit, takes, defaultMeaning, meaning]),
)}

## Variables that the package sets

Before NIXL is first loaded, in the environment that C libraries see, so that UCX does not harm the process that loads it. The user's own setting stands.
Child processes inherit these, and every UCX loaded later in the process has them. Where UCX is loaded already nothing is set. The event
\`nixl.ucx-setting\` and \`mx probe\` tell what became of each.

${table(
  ["variable", "value", "unless set", "what UCX does by default"],
  settings.map(({ variable, value, others, why }) => [
    `\`${variable}\``,
    `\`${value}\``,
    [variable, ...others].map((name) => `\`${name}\``).join(", "),
    why,
  ]),
)}

## Debug log

Node's own \`NODE_DEBUG=modelexpress\` makes the package tell what it does on stderr; programs subscribe to the channel \`modelexpress\` of
\`node:diagnostics_channel\` instead.
`;
}

const exitMeanings = new Map([
  [64, "usage: an option, argument or variable is wrong"],
  [65, "bad data: a file breaks a rule of its format, or its digest differs"],
  [66, "no input: a file or folder is not there, or may not be read"],
  [69, "not available here: this machine, kernel or limit does not allow it"],
  [70, "a fault of the calling program or of this package"],
  [74, "the operating system failed to read or to release"],
  [75, "timed out or stopped; trying again may help"],
]);

/** docs/errors.md from the table of src/error-codes.ts. */
export function errorsMarkdown(errorCodes) {
  return `# Errors

Every error of the package is a \`ModelExpressError\` with a stable \`code\`; facts about it (\`file\`, \`tensor\`, \`offset\`, \`operation\`, \`errno\`,
\`option\`, ...) are fields, so that programs never parse messages. This file is generated from \`src/error-codes.ts\` by \`npm run docs\`.

${table(
  ["code", "cause", "remedy", "exit"],
  Object.entries(errorCodes).map(([code, { cause, remedy, exit }]) => [`\`${code}\``, cause, remedy, String(exit)]),
)}

## Exit codes of \`mx\`

They follow sysexits.h; 0 is success. 130 means that SIGINT (Ctrl-C) interrupted \`mx\`, and 143 that SIGTERM ended it, as service managers and Kubernetes
send it: 128 and the number of the signal.

${table(
  ["exit", "meaning"],
  [...exitMeanings].map(([exit, meaning]) => [String(exit), meaning]),
)}
`;
}

function table(titles, rows) {
  const line = (cells) => `| ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
  return [line(titles), line(titles.map(() => "---")), ...rows.map(line)].join("\n");
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { envTable } = await import("../dist/envs.js");
  const { ucxSettings } = await import("../dist/transfer/nixl/ucx-settings.js");
  const { errorCodes } = await import("../dist/error-codes.js");
  await writeFile(new URL("../docs/environment.md", import.meta.url), environmentMarkdown(envTable, ucxSettings));
  await writeFile(new URL("../docs/errors.md", import.meta.url), errorsMarkdown(errorCodes));
}
