import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { root, temporaryFolder } from "../support/folders.js";
import { runMx, runProgram } from "../support/run-node.js";
import { buildSafetensors } from "../support/safetensors.js";

const commands = ["inspect", "plan", "load", "verify", "probe", "sample", "bench"];

describe("mx --help", () => {
  it("teaches: commands, examples, exit codes, environment", async () => {
    const { code, stdout, stderr } = await runMx(["--help"]);
    expect([code, stderr]).toEqual([0, ""]);
    for (const command of commands) expect(stdout).toMatch(new RegExp(`^ {2}${command} `, "m"));
    for (const exit of [0, 64, 65, 66, 69, 70, 74, 75, 130]) expect(stdout).toMatch(new RegExp(`\\b${exit} {2}\\S`));
    expect(stdout).toContain("Examples:");
    expect(stdout).toContain("MX_DRIVER");
    for (const line of stdout.split("\n")) expect(line.length, line).toBeLessThanOrEqual(140);
  });

  it.each(commands)("of %s has an example and --json", async (command) => {
    for (const args of [
      [command, "--help"],
      ["help", command],
    ]) {
      const { code, stdout, stderr } = await runMx(args);
      expect([code, stderr]).toEqual([0, ""]);
      expect(stdout).toContain(`Usage: mx ${command}`);
      expect(stdout).toMatch(/^Examples?:\n {2}mx /m);
      expect(stdout).toContain("--json");
    }
  });

  it("tells its version", async () => {
    expect((await runMx(["--version"])).stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
  });
});

describe("the streams", () => {
  it("show a bar on a terminal, and take it away", async () => {
    const script = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)";
    const mx = [process.execPath, join(root, "dist/cli/main.js"), "sample", temporaryFolder(), "--bytes", "16MiB"];
    const { code, stdout } = await runProgram("python3", ["-c", script, ...mx], { env: { TERM: "xterm" } });
    expect(code).toBe(0);
    expect(stdout).toMatch(/writing =*-* *\d+%/);
    // cli-progress erases the line and shows the cursor again.
    expect(stdout).toContain("\u001b[?25h");
  });

  it("show no bar without one", async () => {
    const { stderr } = await runMx(["sample", temporaryFolder(), "--bytes", "16MiB"]);
    expect(stderr).toBe("");
  });

  it("may be closed early by the reader", async () => {
    const file = join(temporaryFolder(), "model.safetensors");
    const tensors = Object.fromEntries(Array.from({ length: 5000 }, (_, i) => [`tensor.${i}`, { dtype: "U8" as const, shape: [1] }]));
    writeFileSync(file, buildSafetensors(tensors));
    const script = 'set -o pipefail; "$0" "$1" inspect "$2" --tensors | head -n 1';
    const { code, stdout, stderr } = await runProgram("bash", ["-c", script, process.execPath, join(root, "dist/cli/main.js"), file]);
    expect([code, stderr]).toEqual([0, ""]);
    expect(stdout).toMatch(/^path /);
  });
});
