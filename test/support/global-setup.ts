import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { addonPath } from "../../src/native/addon-path.js";

/** Builds the addon of the tests, which takes no time where it is up to date. */
export default function setup(): void {
  const script = fileURLToPath(new URL("../../scripts/test-addon.mjs", import.meta.url));
  const { status } = spawnSync(process.execPath, [script], { stdio: "inherit" });
  if (status !== 0) throw new Error("the addon of the tests cannot be built: see above");
  // Many tests run the addon and the command as built. The others can run without, so this only
  // tells.
  const command = new URL("../../dist/cli/main.js", import.meta.url);
  if (!existsSync(addonPath()) || !existsSync(command))
    console.warn("dist/ is not built, and many tests need it: `npm run build`, or `npm test`");
}
