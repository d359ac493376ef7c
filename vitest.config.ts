import { defineConfig } from "vitest/config";
import { testAddon } from "./test/support/test-addon.js";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    globalSetup: "test/support/global-setup.ts",
    // A process per file: tests count descriptors, threads and memory of their own process, and
    // change its limits.
    pool: "forks",
    // The drivers' own threads need a core too.
    maxWorkers: 2,
    execArgv: ["--expose-gc"],
    // Reads of the test files' own processes can be planned to fail.
    env: { MX_NATIVE_ADDON: testAddon },
    testTimeout: 30_000,
    hookTimeout: 30_000,
    restoreMocks: true,
    unstubEnvs: true,
  },
});
