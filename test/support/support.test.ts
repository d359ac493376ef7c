import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it, vi } from "vitest";
import { faultEnv, faultHits, withoutIoUring } from "./faults.js";
import { temporaryFolder } from "./folders.js";
import { runNode, runProgram } from "./run-node.js";
import { buildSafetensors } from "./safetensors.js";

/**
 * The test tools themselves: a fault tool that deals out nothing would make every fault test pass.
 */
describe("io-faults", () => {
  const readAll = `
    import { openSync, readSync } from "node:fs";
    const file = openSync(process.argv[2]);
    try { console.log(readSync(file, Buffer.alloc(1000), 0, 1000, 100)); } catch ({ code }) { console.log(code); }`;

  async function read(plan: Parameters<typeof faultEnv>[0], nodeArgs: string[] = []) {
    const folder = temporaryFolder();
    const file = join(folder, "some.safetensors");
    writeFileSync(file, Buffer.alloc(4096));
    const report = join(folder, "report");
    const { stdout } = await runNode(readAll, { env: faultEnv(plan, report), args: [file], nodeArgs });
    return { said: stdout.trim(), hits: faultHits(report) };
  }

  it("leaves reads alone without a plan", async () => {
    const { said, hits } = await read({});
    expect(said).toBe("1000");
    expect(hits).toMatchObject({ reads: 1, short: 0, fail: 0 });
  });

  it("cuts reads short", async () => {
    const { said, hits } = await read({ shortBytes: 7 });
    expect(said).toBe("7");
    expect(hits.short).toBe(1);
  });

  it("fails a read over an offset, and only that", async () => {
    expect(await read({ failOffset: 1099 })).toMatchObject({ said: "EIO", hits: { fail: 1 } });
    expect(await read({ failOffset: 1100 })).toMatchObject({ said: "1000", hits: { fail: 0 } });
    expect(await read({ failOffset: 100, failErrno: "EAGAIN" })).toMatchObject({ said: "EAGAIN" });
  });

  it("interrupts reads", async () => {
    // libuv passes EINTR of a file read on.
    expect(await read({ eintrEvery: 1 })).toMatchObject({ said: "EINTR", hits: { eintr: 1 } });
  });

  it("stalls reads", async () => {
    expect(await read({ stallMs: 1 })).toMatchObject({ said: "1000", hits: { stall: 1 } });
  });

  it("hangs a read for ever", async () => {
    const folder = temporaryFolder();
    const file = join(folder, "some.safetensors");
    writeFileSync(file, Buffer.alloc(4096));
    const report = join(folder, "report");
    let child = 0;
    const onStart = (pid: number) => {
      child = pid;
    };
    const run = runNode(readAll, { env: faultEnv({ hangOffset: 200 }, report), args: [file], onStart });
    await vi.waitFor(() => expect(faultHits(report).hang).toBe(1), { timeout: 15_000 });
    process.kill(child, "SIGKILL");
    expect(await run).toMatchObject({ signal: "SIGKILL", stdout: "" });
  });

  it("refuses O_DIRECT", async () => {
    const folder = temporaryFolder();
    const file = join(folder, "some.safetensors");
    writeFileSync(file, Buffer.alloc(4096));
    const report = join(folder, "report");
    const script = `
      import { openSync, constants } from "node:fs";
      try { openSync(process.argv[2], constants.O_RDONLY | constants.O_DIRECT); console.log("open"); } catch ({ code }) { console.log(code); }`;
    const { stdout } = await runNode(script, { env: faultEnv({ noDirect: true }, report), args: [file] });
    expect(stdout.trim()).toBe("EINVAL");
    expect(faultHits(report).nodirect).toBe(1);
  });
});

describe("without-io-uring", () => {
  it.each(["EPERM", "ENOSYS", "EOPNOTSUPP"] as const)("refuses io_uring_setup with %s", async (errno) => {
    const script =
      "import ctypes, errno; libc = ctypes.CDLL(None, use_errno=True); r = libc.syscall(425, 1, None); print(r, errno.errorcode[ctypes.get_errno()])";
    const { stdout } = await runProgram("python3", ["-c", script], { under: withoutIoUring(errno) });
    expect(stdout.trim().replace("ENOTSUP", "EOPNOTSUPP")).toBe(`-1 ${errno}`);
  });

  it("leaves the rest alone, and the exit code", () => {
    const [runner = "", ...words] = withoutIoUring("EPERM");
    const { status, stdout } = spawnSync(runner, [...words, "sh", "-c", "echo fine; exit 7"], { encoding: "utf8" });
    expect([status, stdout]).toEqual([7, "fine\n"]);
    for (const wrong of [
      ["all", "EWHAT"],
      ["some", "EPERM"],
    ])
      expect(spawnSync(runner, [...wrong, "true"]).status).toBe(125);
  });
});

describe("buildSafetensors", () => {
  it("lays out a file byte for byte", () => {
    const file = buildSafetensors({ a: { dtype: "U8", shape: [2], bytes: Buffer.from([1, 2]) } });
    const header = '{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}';
    expect(file.readBigUInt64LE()).toBe(56n);
    expect(file.subarray(8, 64).toString()).toBe(header.padEnd(56));
    expect([...file.subarray(64)]).toEqual([1, 2]);
  });
});
