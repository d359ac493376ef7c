import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { temporaryFolder } from "../support/folders.js";
import { runMx, runProgram } from "../support/run-node.js";
import { unavailable } from "../support/unavailable.js";

async function scriptFor(shell: string): Promise<string> {
  const { code, stdout, stderr } = await runMx(["completion", shell]);
  expect([code, stderr]).toEqual([0, ""]);
  const file = join(temporaryFolder(), `mx.${shell}`);
  writeFileSync(file, stdout);
  return file;
}

describe("mx completion", () => {
  // What is typed, as bash cuts it into words, and what bash is given; nothing where bash completes
  // paths by itself.
  it.each<[words: string[], expected: string]>([
    [["mx", "lo"], "load"],
    [["mx", ""], "inspect plan load verify probe sample bench completion help"],
    [["mx", "load", "--dr"], "--driver"],
    [["mx", "load", "--driver", ""], "auto pread io_uring map nixl staged"],
    [["mx", "load", "--driver", "=", "io"], "io_uring"],
    [["mx", "load", "--driver", "="], "auto pread io_uring map nixl staged"],
    [["mx", "load", "--include", "x"], ""],
    [["mx", "load", "./fol"], ""],
    [["mx", "load", "--json", "./folder", "--tim"], "--timeout"],
    [["mx", "sample", "--shape", "m"], "many-small"],
    [["mx", "completion", ""], "bash zsh fish"],
    [["mx", "help", "pro"], "probe"],
  ])("in bash: %j", async (words, expected) => {
    const file = await scriptFor("bash");
    // compopt works only while a shell completes.
    const line = `compopt() { :; }; source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _mx; echo "\${COMPREPLY[*]}"; complete -p mx`;
    const { code, stdout, stderr } = await runProgram("bash", ["-uc", line, "bash", file, ...words]);
    expect([code, stderr, stdout]).toEqual([0, "", `${expected}\ncomplete -o default -F _mx mx\n`]);
  });

  it.for(["zsh", "fish"])("in %s", async (shell, context) => {
    if (spawnSync(shell, ["--version"]).status !== 0) unavailable(context, `${shell} is not installed`);
    const file = await scriptFor(shell);
    expect(spawnSync(shell, ["-n", file], { encoding: "utf8" })).toMatchObject({ status: 0, stderr: "" });
    if (shell === "zsh") {
      const loaded = spawnSync("zsh", ["-fc", `autoload -Uz compinit; compinit -D; source ${file}; echo $_comps[mx]`], {
        encoding: "utf8",
      });
      expect(loaded).toMatchObject({ status: 0, stdout: "_mx\n", stderr: "" });
      return;
    }
    const completions = (line: string) => {
      const found = spawnSync("fish", ["-Nc", `source ${file}; complete -C '${line}'`], { encoding: "utf8" });
      expect(found).toMatchObject({ status: 0, stderr: "" });
      return found.stdout
        .split("\n")
        .map((each) => each.split("\t")[0])
        .filter(Boolean);
    };
    expect(completions("mx lo")).toEqual(["load"]);
    expect(completions("mx load --dri")).toEqual(["--driver"]);
    expect(completions("mx load --driver io")).toEqual(["io_uring"]);
    expect(completions("mx completion ")).toEqual(["bash", "fish", "zsh"]);
  });

  it("of another shell is a usage error", async () => {
    const { code, stderr } = await runMx(["completion", "tcsh", "--json"]);
    expect(code).toBe(64);
    expect(stderr).toContain("ERR_OPTION_");
  });
});
