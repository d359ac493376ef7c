import { spawnSync } from "node:child_process";
import { chmodSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { transformSync } from "esbuild";
import { describe, expect, it } from "vitest";
import { writeSample } from "../../src/sample/write-sample.js";
import { fakesEnv } from "../support/fakes.js";
import { root, temporaryFolder } from "../support/folders.js";
import { describeNixl } from "../support/nixl.js";
import { runMx, runNode, runProgram } from "../support/run-node.js";
import { buildSafetensors } from "../support/safetensors.js";

const readme = readFileSync(join(root, "README.md"), "utf8");
const revision = "0123456789abcdef0123456789abcdef01234567";
const commands = ["inspect", "plan", "load", "verify", "probe", "sample", "bench"];

/** The command lines of a text, without their comments. */
function commandLines(text: string): string[] {
  return [...text.matchAll(/^ *(mx .+)$/gm)].map(([, line = ""]) => line.replace(/ +# .*$/, ""));
}

/**
 * A folder where everything lies that the examples name: a Llama in shards, by that name and as
 * `./folder`, one file, and a Hub cache at home.
 */
async function workplace() {
  const place = temporaryFolder();
  await writeSample(join(place, "Llama-3-8B"), { shape: "llama", bytes: 2 ** 20, shards: 4 });
  symlinkSync("Llama-3-8B", join(place, "folder"));
  mkdirSync(join(place, "models"));
  const snapshot = join(place, `.cache/huggingface/hub/models--org--name/snapshots/${revision}`);
  mkdirSync(snapshot, { recursive: true });
  for (const folder of [place, snapshot]) {
    writeFileSync(join(folder, "model.safetensors"), buildSafetensors({ "model.norm.weight": { dtype: "BF16", shape: [8] } }));
  }
  mkdirSync(join(place, "bin"));
  script(join(place, "bin/mx"), `exec "${process.execPath}" "${join(root, "dist/cli/main.js")}" "$@"`);
  // jq, where there is none: only whether it is given JSON.
  if (spawnSync("jq", ["--version"]).status !== 0)
    script(join(place, "bin/jq"), `exec "${process.execPath}" -e 'JSON.parse(fs.readFileSync(0))'`);
  return place;
}

function script(file: string, line: string): void {
  writeFileSync(file, `#!/bin/sh\n${line}\n`);
  chmodSync(file, 0o755);
}

/** The line as it runs in the workplace: places become its own, and gigabytes megabytes. */
function localized(line: string, place: string): string {
  return line
    .replaceAll("<revision>", revision)
    .replaceAll(/(?<= )\/(?:tmp|mnt)\//g, `${place}/`)
    .replaceAll("GiB", "MiB")
    .replaceAll("256MiB", "1MiB");
}

async function linesOf(command: string): Promise<string[]> {
  const { stdout } = await runMx([command, "--help"].filter(Boolean));
  return commandLines(/^Examples?:\n([\s\S]*?)(?:\n\n|$(?![\s\S]))/m.exec(stdout)?.[1] ?? "");
}

describe("every command line", () => {
  it.each(["", ...commands])("of the help of mx %s runs", async (command) => {
    const place = await workplace();
    const lines = await linesOf(command);
    expect(lines.length).toBeGreaterThan(0);
    for (const line of lines) await runs(line, place);
  });

  it("of the README runs", async () => {
    const place = await workplace();
    const lines = [...readme.matchAll(/```sh\n([\s\S]*?)```/g)].flatMap(([, block = ""]) => commandLines(block));
    expect(lines.length).toBe(8);
    for (const line of lines) await runs(line, place);
  });

  async function runs(line: string, place: string) {
    const env = {
      ...fakesEnv(),
      HOME: place,
      HF_HUB_CACHE: "",
      HF_HOME: "",
      XDG_CACHE_HOME: "",
      MX_NIXL_LIBRARY: "/nowhere/libnixl_capi.so",
    };
    const shell = ["-c", `set -o pipefail; PATH="${place}/bin:$PATH"; ${localized(line, place)}`];
    const { code, stdout, stderr } = await runProgram("bash", shell, { cwd: place, env, timeoutMs: 60_000 });
    expect([code, stderr], line).toEqual([0, ""]);
    if (!line.includes('!= "ok"')) expect(stdout, line).not.toBe("");
  }
});

it("the calls of the README's table run", async () => {
  const place = await workplace();
  const rows = [...readme.matchAll(/^\| [^|`]+ \| (.+) \|$/gm)].map(([, take = ""]) => take);
  const calls = rows.flatMap(
    (row) =>
      row.match(
        /(?<=`)(?:for )?(?:await )?(?:loadCheckpoint|streamCheckpoint|openCheckpoint|planLoad|\(const|tensor\.use|model\.requireTensor|using borrow)[^`]*/g,
      ) ?? [],
  );
  expect(calls.length).toBe(7);
  const program = `
    import { writeFile } from "node:fs/promises";
    import { loadCheckpoint, openCheckpoint, planLoad, streamCheckpoint } from "modelexpress-client";
    const source = process.argv[2];
    const checkpoint = await openCheckpoint(source);
    const model = await loadCheckpoint(checkpoint);
    const name = "model.norm.weight";
    const tensor = model.requireTensor(name);
    {
      ${calls.map((call) => `{ const path = ${call.includes("writeFile") ? "process.argv[3]" : "source"}; ${call.replace("{ ... }", "{ tensor.bytes(); }")} }`).join("\n")}
    }
    await model.close();
    console.log("done");`;
  const { code } = transformSync(program, { loader: "ts", target: "node20", format: "esm" });
  const finished = await runNode(code, { args: [join(place, "Llama-3-8B"), join(place, "written")] });
  expect(finished).toMatchObject({ code: 0, stderr: "", stdout: "done\n" });
  expect(readFileSync(join(place, "written")).length).toBeGreaterThan(0);
});

describeNixl("the programs of the README for a GPU", (nixl) => {
  it("run as they stand there, one after the other, over the stand-ins", async () => {
    const place = await workplace();
    const blocks = [...readme.matchAll(/```ts\n([\s\S]*?)```/g)].map(([, block]) => block);
    expect(blocks.length).toBe(2);
    const program = ['import { loadCheckpoint } from "modelexpress-client";', ...blocks, 'console.log("done");'].join("\n");
    const { code } = transformSync(program.replaceAll("/models/", `${place}/`), { loader: "ts", target: "node20", format: "esm" });
    const env = { ...fakesEnv({ nixl }), NIXL_LOG_LEVEL: "FATAL" };
    expect(await runNode(code, { env, timeoutMs: 60_000 })).toMatchObject({ code: 0, stdout: "done\n" });
  });
});
