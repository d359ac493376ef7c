import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { folderOf, temporaryFolder } from "../support/folders.js";
import { type RunOptions, runMx } from "../support/run-node.js";
import { buildSafetensors } from "../support/safetensors.js";

const commands = ["inspect", "plan", "load", "verify", "probe", "sample", "bench"];
const bytes = buildSafetensors({ t: { dtype: "U8", shape: [64] } });

/** The one document on stdout; whatever else is there does not parse. */
async function document(args: readonly string[], options?: RunOptions) {
  const { code, stdout, stderr } = await runMx(args, options);
  const parsed = JSON.parse(stdout);
  if (code !== 0) expect(JSON.parse(stderr).error.exit, stderr).toBe(code);
  return { code, parsed };
}

describe("with --json stdout holds exactly one document", () => {
  it.each(commands)("when mx %s is used wrongly", async (command) => {
    const sample = command === "sample";
    const wrong: [string[], string][] = [
      [["--no-such-option"], "ERR_OPTION_UNKNOWN"],
      [["a", "b", "c"], "ERR_OPTION_INVALID"],
      ...(command === "probe" ? [] : [[[], "ERR_OPTION_INVALID"] as [string[], string]]),
      [[""], sample ? "ERR_SAMPLE_WRITE" : "ERR_OPTION_INVALID"],
      ...(sample ? [] : [[["https://x/y"], "ERR_CHECKPOINT_URL_UNSUPPORTED"] as [string[], string]]),
      ...(sample ? [] : [[[join(temporaryFolder(), "nowhere")], "ERR_CHECKPOINT_NOT_FOUND"] as [string[], string]]),
    ];
    for (const [rest, code] of wrong) {
      const { parsed } = await document([command, "--json", ...rest]);
      expect([rest, parsed.error.code]).toEqual([rest, code]);
    }
  });

  it.each(commands)("when the data of mx %s is bad, or all is well", async (command) => {
    const folder = folderOf({ "bad/model.safetensors": bytes.subarray(0, 20), "good/model.safetensors": bytes });
    const more = command === "bench" ? ["--rounds", "1"] : command === "sample" ? ["--bytes", "1MiB", "--force"] : [];
    const bad = await document([command, join(folder, "bad"), "--json", ...more]);
    if (command !== "probe" && command !== "sample")
      expect([bad.code, bad.parsed.error.code]).toEqual([65, "ERR_CHECKPOINT_HEADER_TRUNCATED"]);
    const good = await document([command, join(folder, "good"), "--json", ...more]);
    expect([good.code, good.parsed.error]).toEqual([0, undefined]);
  });

  it.each<[string[], string]>([
    [["--json"], "ERR_OPTION_UNKNOWN"],
    [["nope", "--json"], "ERR_OPTION_UNKNOWN"],
    [["help", "nope", "--json"], "ERR_OPTION_INVALID"],
    [["completion", "bash", "--json"], "ERR_OPTION_UNKNOWN"],
    [["completion", "tcsh", "--json"], "ERR_OPTION_UNKNOWN"],
  ])("for mx %j", async (args, code) => {
    expect(await document(args)).toMatchObject({ code: 64, parsed: { error: { code } } });
  });

  it("for help and version", async () => {
    for (const args of [["--help"], ["help"], ["help", "load"], ["load", "--help"]]) {
      const { code, parsed } = await document([...args, "--json"]);
      expect([code, parsed.help]).toEqual([0, expect.stringContaining("Usage: mx")]);
    }
    expect(await document(["--version", "--json"])).toEqual({ code: 0, parsed: { version: expect.stringMatching(/^\d+\.\d+\.\d+$/) } });
  });

  it("for a mismatch, which is a result and an error", async () => {
    const folder = folderOf({ "model.safetensors": bytes, SHA256SUMS: `${"0".repeat(64)}  model.safetensors\n` });
    const { code, parsed } = await document(["verify", folder, "--json"]);
    expect([code, parsed.shards[0].status, parsed.error]).toEqual([65, "mismatch", undefined]);
  });

  it("for a path that is spelled like the flag", async () => {
    const cwd = temporaryFolder();
    mkdirSync(join(cwd, "--json"));
    writeFileSync(join(cwd, "--json/model.safetensors"), bytes);
    const { code, stdout } = await runMx(["inspect", "--", "--json"], { cwd });
    expect([code, stdout]).toEqual([0, expect.stringMatching(/^path +\//)]);
  });
});
