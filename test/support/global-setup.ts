import { existsSync } from "node:fs";
import { addonPath } from "../../src/native/addon-path.js";

/** Many tests run the addon and the command as built. The others can run without, so this only tells. */
export default function setup(): void {
  const command = new URL("../../dist/cli/main.js", import.meta.url);
  if (!existsSync(addonPath()) || !existsSync(command))
    console.warn("dist/ is not built, and many tests need it: `npm run build`, or `npm test`");
}
