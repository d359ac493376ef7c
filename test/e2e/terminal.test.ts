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

/** Runs `mx` on a terminal of so many columns; what it writes to both streams is in `stdout`. */
function onTerminal(columns: number, args: readonly string[]) {
  const script = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)";
  const sized = ["sh", "-c", `stty cols ${columns} rows 24; exec "$0" "$@"`, process.execPath, join(root, "dist/cli/main.js")];
  return runProgram("python3", ["-c", script, ...sized, ...args], { env: { TERM: "xterm" } });
}

describe("the streams", () => {
  it("show a bar on a terminal, with rate and time left, and take it away", async () => {
    const { code, stdout } = await onTerminal(120, ["sample", temporaryFolder(), "--bytes", "64MiB"]);
    expect(code).toBe(0);
    expect(stdout).toMatch(/writing =*-* \d+% {2}\S+ \S+ of 64 MiB/);
    expect(stdout).toMatch(/ of 64 MiB {2}\S+ .B\/s {2}.+ left/);
    // cli-progress erases the line and shows the cursor again.
    expect(stdout).toContain("\u001b[?25h");
  });

  it("show a bar that fits, also while timing", async () => {
    const folder = temporaryFolder();
    expect((await runMx(["sample", folder, "--bytes", "1MiB"])).code).toBe(0);
    const { code, stdout } = await onTerminal(20, ["bench", folder, "--rounds", "1"]);
    expect(code).toBe(0);
    const bars = stdout.split("\u001b").flatMap((part) => /timing, warm \d+%.*/.exec(part) ?? []);
    expect(bars.length).toBeGreaterThan(0);
    for (const bar of bars) expect(bar.length, bar).toBeLessThan(20);
  });

  it("fit errors and help to a terminal's width", async () => {
    for (const args of [
      ["load", "/nowhere/model.safetensors"],
      ["load", "--help"],
    ]) {
      const { stdout } = await onTerminal(60, args);
      const lines = stdout.replaceAll("\r", "").split("\n");
      expect(lines.length).toBeGreaterThan(3);
      for (const line of lines) expect(line.length, line).toBeLessThanOrEqual(60);
    }
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
