import { copyFileSync, cpSync, mkdirSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { build } from "esbuild";
import { beforeEach, describe, expect, it } from "vitest";
import { platformName, platformPackage } from "../../src/native/addon-path.js";
import { writeSample } from "../../src/sample/write-sample.js";
import { root, temporaryFolder } from "../support/folders.js";
import { runProgram } from "../support/run-node.js";

/** As it is packed, not that of the tests. */
const addon = join(root, "lib", `modelexpress.${platformName()}.node`);
const name = basename(addon);
const program = `
  import { loadCheckpoint } from "modelexpress-client";
  loadCheckpoint(process.argv[2]).then(
    async (model) => { console.log(model.tensors.size + " tensors"); await model.close(); },
    (error) => console.log(JSON.stringify({ code: error.code, message: error.message })),
  );`;

let folder: string;
let checkpoint: string;
beforeEach(async () => {
  folder = temporaryFolder();
  checkpoint = join(folder, "checkpoint");
  await writeSample(checkpoint, { shape: "llama", bytes: 2 ** 20 });
});

async function run(file: string, env: Readonly<Record<string, string>> = {}): Promise<string> {
  const { stdout, stderr } = await runProgram(process.execPath, [file, checkpoint], { cwd: folder, env });
  return (stdout + stderr).trimEnd();
}

/** Puts a package for this platform into a node_modules. */
function installPlatformPackage(nodeModules: string): void {
  const target = join(nodeModules, platformPackage(platformName()));
  mkdirSync(target, { recursive: true });
  writeFileSync(join(target, "package.json"), JSON.stringify({ name: platformPackage(platformName()), version: "0.1.0", main: name }));
  copyFileSync(addon, join(target, name));
}

describe.each(["esm", "cjs"] as const)("a bundle (esbuild, %s)", (format) => {
  let file: string;
  beforeEach(async () => {
    file = join(folder, "app/dist", format === "esm" ? "out.mjs" : "out.cjs");
    await build({
      stdin: { contents: program, resolveDir: root },
      bundle: true,
      platform: "node",
      format,
      outfile: file,
      logOverride: { "empty-import-meta": "silent" },
    });
    writeFileSync(join(folder, "app/package.json"), '{ "name": "app" }');
  });

  it("works with the addon beside it", async () => {
    copyFileSync(addon, join(folder, "app/dist", name));
    expect(await run(file)).toBe("21 tensors");
  });

  it("works with the addon that MX_NATIVE_ADDON names", async () => {
    copyFileSync(addon, join(folder, "elsewhere.node"));
    expect(await run(file, { MX_NATIVE_ADDON: "elsewhere.node" })).toBe("21 tensors");
  });

  it("works with the package for the platform installed", async () => {
    installPlatformPackage(join(folder, "app/node_modules"));
    expect(await run(file)).toBe("21 tensors");
  });

  it("says what to do where there is none", async () => {
    const { code, message } = JSON.parse(await run(file)) as { code: string; message: string };
    expect(code).toBe("ERR_NATIVE_BUNDLED");
    for (const word of [file, "external to the bundle", platformPackage(platformName()), `copy ${name} beside`, "MX_NATIVE_ADDON"])
      expect(message).toContain(word);
  });
});

describe("the package without an addon of its own", () => {
  let file: string;
  beforeEach(() => {
    const installed = join(folder, "node_modules/modelexpress-client");
    cpSync(join(root, "lib"), join(installed, "lib"), { recursive: true, filter: (path) => !path.endsWith(".node") });
    copyFileSync(join(root, "package.json"), join(installed, "package.json"));
    file = join(folder, "program.mjs");
    writeFileSync(file, program);
  });

  it("takes that of the package for the platform", async () => {
    installPlatformPackage(join(folder, "node_modules"));
    expect(await run(file)).toBe("21 tensors");
  });

  it("names the package to install", async () => {
    const { code, message } = JSON.parse(await run(file)) as { code: string; message: string };
    expect(code).toBe("ERR_NATIVE_MISSING");
    expect(message).toContain(`npm install ${platformPackage(platformName())}@0.1.0`);
  });

  it("says that MX_NATIVE_ADDON names nothing, and tries no other place", async () => {
    installPlatformPackage(join(folder, "node_modules"));
    const { code, message } = JSON.parse(await run(file, { MX_NATIVE_ADDON: "/nowhere/x.node" })) as { code: string; message: string };
    expect([code, message]).toEqual(["ERR_NATIVE_MISSING", "MX_NATIVE_ADDON names /nowhere/x.node, and there is no such file"]);
  });
});
