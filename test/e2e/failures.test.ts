import { mkdirSync, readdirSync, truncateSync, watch, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { faultEnv, faultHits, withoutIoUring } from "../support/faults.js";
import { temporaryFolder } from "../support/folders.js";
import { type RunOptions, runMx } from "../support/run-node.js";
import { buildSafetensors, rawHeader } from "../support/safetensors.js";

/**
 * Large enough that a read of its header does not reach the offset at which reads are made to go
 * wrong.
 */
const sampleBytes = 4_000_000;
const faultyOffset = 3_000_000;

function sampleFile() {
  const file = join(temporaryFolder(), "model.safetensors");
  writeFileSync(file, buildSafetensors({ t: { dtype: "U8", shape: [sampleBytes] } }));
  return file;
}

/**
 * Runs a command that must fail, as text and with `--json`, and checks the form of what it tells.
 */
async function failing(args: string[], exit: number, code: string, options: RunOptions = {}) {
  const text = await runMx(args, options);
  expect([text.code, text.stdout], text.stderr).toEqual([exit, ""]);
  expect(text.stderr).toMatch(/^mx: .+\n {2}code {4}[A-Z_]+\n( {2}remedy {2}.+\n)?$/);
  expect(text.stderr).toContain(`  code    ${code}\n`);
  const json = await runMx([...args, "--json"], options);
  expect([json.code, json.stdout]).toEqual([exit, json.stderr]);
  const { error } = JSON.parse(json.stderr);
  expect(error).toMatchObject({ code, exit });
  // A stack would show the places of this package, not of the mistake.
  expect(text.stderr + json.stderr).not.toMatch(/\n\s+at |node:internal|dist\/cli/);
  return error;
}

describe("64, wrong usage", () => {
  it.each<[string[], string]>([
    [["fly"], "ERR_OPTION_UNKNOWN"],
    [["load", "x", "--fast"], "ERR_OPTION_UNKNOWN"],
    [["load"], "ERR_OPTION_INVALID"],
    [["load", "x", "y"], "ERR_OPTION_INVALID"],
    [["load", "x", "--driver", "warp"], "ERR_OPTION_UNKNOWN"],
    [["load", "x", "--threads", "0"], "ERR_OPTION_INVALID"],
    [["load", "x", "--threads", "two"], "ERR_OPTION_INVALID"],
    [["load", "x", "--timeout", "-1"], "ERR_OPTION_INVALID"],
    [["load", "x", "--timeout", "1e9"], "ERR_OPTION_INVALID"],
    [["load", "x", "--timeout", "5 days"], "ERR_OPTION_INVALID"],
    [["load", "x", "--max-chunk", "8 potatoes"], "ERR_OPTION_INVALID"],
    [["plan", "x", "--placement", "random"], "ERR_OPTION_UNKNOWN"],
    [["sample", "x", "--shape", "gpt"], "ERR_OPTION_UNKNOWN"],
    [["sample", "x", "--bytes", "12"], "ERR_OPTION_INVALID"],
    [["inspect", "https://example.com/model.safetensors"], "ERR_CHECKPOINT_URL_UNSUPPORTED"],
  ])("mx %j", async (args, code) => {
    await failing(args, 64, code);
  });

  it("without a command shows the help on stderr", async () => {
    const { code, stdout, stderr } = await runMx([]);
    expect([code, stdout]).toEqual([64, ""]);
    expect(stderr).toContain("Usage: mx");
  });

  it("for options that exclude each other", async () => {
    await failing(["load", sampleFile(), "--driver", "map", "--placement", "aligned"], 64, "ERR_OPTION_CONFLICT");
  });

  it("for a tensor that is not there", async () => {
    await failing(["load", sampleFile(), "--include", "nothing"], 64, "ERR_PLAN_TENSOR_UNKNOWN");
  });

  it("for an environment variable with a value that is not allowed", async () => {
    await failing(["load", sampleFile()], 64, "ERR_ENV_INVALID", { env: { MX_DRIVER: "warp" } });
  });

  it("for a sample over weights that are there", async () => {
    await failing(["sample", join(sampleFile(), "..")], 64, "ERR_SAMPLE_EXISTS");
  });
});

describe("65, bad data", () => {
  it("for a header that is wrong", async () => {
    const file = join(temporaryFolder(), "bad.safetensors");
    writeFileSync(file, rawHeader('{"a":{"dtype":"F31","shape":[],"data_offsets":[0,4]}}'));
    const error = await failing(["load", file], 65, "ERR_CHECKPOINT_UNKNOWN_DTYPE");
    expect(error).toMatchObject({ file, tensor: "a" });
  });

  it("for half a download", async () => {
    const file = join(temporaryFolder(), "half.safetensors");
    writeFileSync(file, buildSafetensors({ t: { dtype: "U8", shape: [1000] } }).subarray(0, 500));
    await failing(["verify", file], 65, "ERR_CHECKPOINT_FILE_TRUNCATED");
  });
});

describe("66, no input", () => {
  it("for a path that is not there, and a folder without weights", async () => {
    const folder = temporaryFolder();
    for (const command of ["inspect", "plan", "load", "verify", "bench", "probe"]) {
      const error = await failing([command, join(folder, "nowhere")], 66, "ERR_CHECKPOINT_NOT_FOUND");
      expect(error.message).toBe(`${folder}/nowhere: no such file or folder (ENOENT)`);
    }
    const below = await failing(["probe", join(sampleFile(), "x")], 66, "ERR_CHECKPOINT_NOT_FOUND");
    expect(below.message).toMatch(/no such file or folder: a part of the path is a file \(ENOTDIR\)$/);
    await failing(["probe", "org/nowhere"], 66, "ERR_CHECKPOINT_NOT_FOUND", { env: { HF_HUB_CACHE: folder } });
    mkdirSync(join(folder, "empty"));
    await failing(["load", join(folder, "empty")], 66, "ERR_CHECKPOINT_NOT_FOUND");
  });
});

describe("69, not available here", () => {
  it.each(["EPERM", "ENOSYS", "EOPNOTSUPP"] as const)("for io_uring asked by name where it is refused with %s", async (errno) => {
    const under = withoutIoUring(errno);
    const error = await failing(["load", sampleFile(), "--driver", "io_uring"], 69, "ERR_TRANSFER_IO_URING_REFUSED", { under });
    expect(error.errno).toBe(errno);
    const { code, stdout } = await runMx(["load", sampleFile(), "--json"], { under });
    expect(code).toBe(0);
    expect(JSON.parse(stdout).report.driver.asked).toBe("auto");
  });

  it("for NIXL that is not installed, in three lines that say where to read on", async () => {
    const env = { MX_NIXL_LIBRARY: "", LD_LIBRARY_PATH: "", PATH: "/nowhere" };
    const args = ["load", sampleFile(), "--driver", "nixl"];
    const error = await failing(args, 69, "ERR_NIXL_NOT_FOUND", { env });
    expect(error.message).toMatch(/ no libnixl_capi\.so on the loader's path or in NVIDIA's usual places; python3 cannot be asked: /);
    expect(error.remedy).toContain("Read on: `mx probe`");
    expect(error.tried.length).toBeGreaterThan(10);
  });

  it("for memory that is not there", async () => {
    const file = join(temporaryFolder(), "large.safetensors");
    const bytes = 2 ** 43;
    const header = rawHeader(`{"t":{"dtype":"U8","shape":[${bytes}],"data_offsets":[0,${bytes}]}}`);
    writeFileSync(file, header);
    truncateSync(file, header.length + bytes);
    await failing(["load", file], 69, "ERR_MEMORY_WOULD_NOT_FIT");
  });
});

describe("74, the disk failed", () => {
  it("for a read that fails, and tells where", async () => {
    const report = join(temporaryFolder(), "report");
    const env = faultEnv({ failOffset: faultyOffset }, report);
    const error = await failing(["load", sampleFile(), "--driver", "pread"], 74, "ERR_TRANSFER_READ", { env });
    expect(error.errno).toBe("EIO");
    expect(error.offset).toBeLessThanOrEqual(faultyOffset);
    expect(faultHits(report).fail).toBeGreaterThanOrEqual(2);
  });
});

describe("75, timed out", () => {
  it("for a read that never returns", async () => {
    const env = faultEnv({ hangOffset: faultyOffset }, join(temporaryFolder(), "report"));
    await failing(["load", sampleFile(), "--driver", "pread", "--timeout", "300ms"], 75, "ERR_TRANSFER_TIMEOUT", { env });
  });
});

describe("interrupted", () => {
  it.each([
    ["SIGINT", 130],
    ["SIGTERM", 143],
  ] as const)("by %s: exit code %s, though a read hangs", async (signal, exit) => {
    const folder = temporaryFolder();
    const report = join(folder, "report");
    let child: number | undefined;
    // The report appears when the read hangs: the load is on its way.
    const watcher = watch(folder, () => {
      watcher.close();
      if (child !== undefined) process.kill(child, signal);
    });
    const finished = await runMx(["load", sampleFile(), "--driver", "pread"], {
      env: faultEnv({ hangOffset: faultyOffset }, report),
      onStart: (pid) => {
        child = pid;
      },
    });
    expect(faultHits(report).hang).toBeGreaterThan(0);
    expect(finished.code).toBe(exit);
    expect(finished.stderr).toBe(`mx: interrupted by ${signal}\n`);
  });

  it("leaves no part of a sample behind", async () => {
    const folder = temporaryFolder();
    let child: number | undefined;
    // The first file that appears is the signal to interrupt, once: a second one would kill.
    const watcher = watch(folder, () => {
      watcher.close();
      if (child !== undefined) process.kill(child, "SIGINT");
    });
    const finished = await runMx(["sample", folder, "--bytes", "1GiB"], {
      onStart: (pid) => {
        child = pid;
      },
    });
    expect(finished.code).toBe(130);
    expect(readdirSync(folder)).toEqual([]);
  });
});
