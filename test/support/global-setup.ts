import { existsSync } from "node:fs";
import { addonPath } from "../../src/native/addon-path.js";
import { testAddon } from "./test-addon.js";

/**
 * Many tests run the addon and the command as built. The others can run without, so this only
 * tells.
 */
export default function setup(): void {
  const command = new URL("../../dist/cli/main.js", import.meta.url);
  if (![addonPath(), testAddon, command].every((file) => existsSync(file)))
    console.warn("what many tests need is not built: `npm run test:unit`, or `npm test`");
}
