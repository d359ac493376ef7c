// Checks and times the package on a machine with a GPU: builds it, brings NIXL where there is none,
// and runs the steps of gpu-check/.
import { join } from "node:path";
import { runCheck } from "../gpu-check/run.mjs";
import { build } from "./build.mjs";
import { fetchNixl } from "./nixl.mjs";
import { isMain, main, root } from "./process.mjs";

async function gpuCheck() {
  const args = process.argv.slice(2);
  const built = args.includes("--no-build");
  if (!built) await build();
  if (process.env.MX_NIXL_LIBRARY === undefined) {
    try {
      process.env.MX_NIXL_LIBRARY = fetchNixl();
    } catch (error) {
      console.error(`NIXL cannot be had, so its steps are skipped: ${error.message}`);
    }
  }
  const rest = args.filter((arg) => arg !== "--no-build");
  return await runCheck(rest.includes("--folder") ? rest : [...rest, "--folder", join(root, ".cache/gpu-check")]);
}

if (isMain(import.meta.url)) await main(gpuCheck);
