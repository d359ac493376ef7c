import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { faultEnv, faultHits } from "../support/faults.js";
import { temporaryFolder } from "../support/folders.js";
import { type Tensors, writeCheckpoint } from "../support/loading.js";
import { type RunOptions, runMx, runNode } from "../support/run-node.js";

const MIB = 2 ** 20;
const tensors: Tensors = { a: { dtype: "U8", shape: [2 * MIB] }, b: { dtype: "U8", shape: [100] } };
/** A read over this offset never returns; the header is far before it. */
const hangOffset = 1_500_000;

/**
 * Runs a script with `path` and the package's exports in scope in a process whose read of the
 * checkpoint is stuck for ever; it must end by itself.
 */
async function runStuck(body: string, options: RunOptions = {}): Promise<{ told: string; code: number | null; signal: string | null }> {
  const path = writeCheckpoint(tensors);
  const backwards = writeCheckpoint({ b: { dtype: "U8", shape: [100] }, a: { dtype: "U8", shape: [3_000_000] } });
  const report = join(temporaryFolder(), "hits");
  const script = `
    import { hostBackend, loadCheckpoint, streamCheckpoint, VmmArena } from "modelexpress-client";
    const path = process.argv[2];
    import { existsSync, readFileSync } from "node:fs";
    const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
    const codeOf = async (action) => { try { await action(); return "ok"; } catch (error) { return error?.code ?? error; } };
    const stuck = async (times = 1) => {
      while (!existsSync(process.argv[4]) || (readFileSync(process.argv[4], "utf8").match(/hang=/g) ?? []).length < times) await sleep(5);
    };
    ${body}`;
  const { code, signal, stdout, stderr } = await runNode(script, {
    ...options,
    args: [path, backwards, report],
    env: faultEnv({ hangOffset }, report),
    timeoutMs: 20_000,
  });
  expect(stderr).toBe("");
  expect(faultHits(report).hang).toBeGreaterThanOrEqual(1);
  return { told: stdout.trim(), code, signal };
}

describe.each(["pread", "auto"])("a read that never returns, by the driver %s", (driver) => {
  const options = `driver: "${driver}", maxChunkBytes: 512 * 1024`;

  it("at the deadline is an error in time, and the process ends at its end", async () => {
    const { told, code } = await runStuck(`
      const begun = performance.now();
      const error = await loadCheckpoint(path, { ${options}, timeoutMs: 1000 }).catch((error) => error);
      const ms = performance.now() - begun;
      console.log(JSON.stringify({ code: error.code, total: error.totalBytes, in: ms < 1000 + 1000 }));`);
    expect(JSON.parse(told)).toEqual({ code: "ERR_TRANSFER_TIMEOUT", total: 2 * MIB + 100, in: true });
    expect(code).toBe(0);
  });

  it("at an abort is its error in time; its memory stays in quarantine", async () => {
    const { told, code } = await runStuck(`
      const arena = new VmmArena({ backend: hostBackend(), totalBytes: ${16 * MIB} });
      const controller = new AbortController();
      const reason = { mine: true };
      const load = loadCheckpoint(path, { ${options}, arena, signal: controller.signal });
      load.catch(() => {});
      await stuck();
      const begun = performance.now();
      controller.abort(reason);
      const error = await load.catch((error) => error);
      const same = error.code === "ERR_ABORTED" && error.cause === reason && !("settled" in reason);
      const ms = performance.now() - begun;
      console.log(JSON.stringify([same, ms < 1000, await codeOf(() => arena.free(arena.base)), await codeOf(() => arena.close()), arena.liveAllocationCount]));`);
    expect(JSON.parse(told)).toEqual([true, true, "ERR_ARENA_BUSY", "ERR_ARENA_BUSY", 1]);
    expect(code).toBe(0);
  });

  it("in a stream: the deadline ends the step in time, and leaving the loop is ERR_TRANSFER_STUCK after closeTimeoutMs", async () => {
    const { told, code } = await runStuck(`
      const late = streamCheckpoint(path, { ${options}, maxBytes: 4e6, timeoutMs: 1000 });
      console.log(await codeOf(() => late.next()));
      // The small tensor comes first, and the window read ahead of it is stuck.
      const left = async () => {
        for await (const tensor of streamCheckpoint(process.argv[3], { ${options}, maxBytes: 6e6, closeTimeoutMs: 100 })) { await stuck(2); break; }
      };
      console.log(await codeOf(left));`);
    expect(told.split("\n")).toEqual(["ERR_TRANSFER_TIMEOUT", "ERR_TRANSFER_STUCK"]);
    expect(code).toBe(0);
  });

  it("does not keep process.exit() from ending the process", async () => {
    const { told, code } = await runStuck(`
      loadCheckpoint(path, { ${options} });
      await stuck();
      console.log("leaving");
      process.exit(7);`);
    expect([told, code]).toEqual(["leaving", 7]);
  });

  it("nor an uncaught exception", async () => {
    const { told, code } = await runStuck(`
      loadCheckpoint(path, { ${options} });
      await stuck();
      process.on("uncaughtException", ({ message }) => { console.log(message); process.exit(9); });
      throw new Error("of the program");`);
    expect([told, code]).toEqual(["of the program", 9]);
  });

  it("keeps the process alive while somebody waits for `settled`", async () => {
    const { told, code } = await runStuck(`
      const error = await loadCheckpoint(path, { ${options}, timeoutMs: 1000 }).catch((error) => error);
      setTimeout(() => { console.log("still here"); process.exit(5); }, 300).unref();
      await error.settled;`);
    expect([told, code]).toEqual(["still here", 5]);
  });
});

describe("mx load", () => {
  it("ends in time with the exit code for a timeout, though a read is stuck", async () => {
    const path = writeCheckpoint(tensors);
    const report = join(temporaryFolder(), "hits");
    const begun = performance.now();
    const run = await runMx(["load", path, "--driver", "pread", "--timeout", "0.5"], { env: faultEnv({ hangOffset }, report) });
    expect(run.code).toBe(75);
    expect(run.stderr).toContain("ERR_TRANSFER_TIMEOUT");
    expect(performance.now() - begun).toBeLessThan(10_000);
    expect(faultHits(report).hang).toBe(1);
  });
});

describe("headers that cannot be read", () => {
  it("end at the deadline as well", async () => {
    const path = join(temporaryFolder(), "slow.safetensors");
    writeFileSync(path, Buffer.concat([Buffer.of(2, 0, 0, 0, 0, 0, 0, 0), Buffer.from("{}")]));
    const script = `
      import { loadCheckpoint, streamCheckpoint } from "modelexpress-client";
      const codes = [];
      for (const open of [(options) => loadCheckpoint(process.argv[2], options), (options) => streamCheckpoint(process.argv[2], options).next()]) {
        const begun = performance.now();
        const error = await open({ timeoutMs: 200 }).catch((error) => error);
        codes.push(error.code, performance.now() - begun < 1500);
      }
      console.log(JSON.stringify(codes));
      process.exit();`;
    const report = join(temporaryFolder(), "hits");
    const { stdout } = await runNode(script, { args: [path], env: faultEnv({ hangOffset: 0 }, report) });
    expect(JSON.parse(stdout)).toEqual(["ERR_TRANSFER_TIMEOUT", true, "ERR_TRANSFER_TIMEOUT", true]);
  });
});
