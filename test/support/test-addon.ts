import { fileURLToPath } from "node:url";

/**
 * The addon whose reads can be planned to fail: test files load it, the processes that they start
 * do where they are told to.
 */
export const testAddon = fileURLToPath(new URL("../../.cache/test-addon.node", import.meta.url));
