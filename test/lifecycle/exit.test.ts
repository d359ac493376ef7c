import { describe, expect, it } from "vitest";
import { copyingDrivers, type Tensors, writeCheckpoint } from "../support/loading.js";
import { type Finished, runNode } from "../support/run-node.js";

const MIB = 2 ** 20;
const tensors: Tensors = { a: { dtype: "U8", shape: [24 * MIB], bytes: Buffer.alloc(24 * MIB, 3) }, b: { dtype: "F32", shape: [1000] } };
const drivers = [...copyingDrivers, "map"] as const;

/** Runs a script with `path`, `driver` and the package's exports in scope. */
function run(driver: string, body: string, onStart?: (pid: number) => void): Promise<Finished> {
  const script = `
    import { loadCheckpoint, openCheckpoint, streamCheckpoint } from "modelexpress-client";
    const [path, driver] = process.argv.slice(2);
    const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
    ${body}`;
  return runNode(script, { args: [writeCheckpoint(tensors), driver], timeoutMs: 15_000, ...(onStart === undefined ? {} : { onStart }) });
}

describe.each(drivers)("a process ends, with the driver %s,", (driver) => {
  it("with a model open and views of it held", async () => {
    const finished = await run(
      driver,
      `globalThis.view = (await loadCheckpoint(path, { driver })).tensors.get("a").bytes(); console.log(view[5]);`,
    );
    expect(finished).toEqual({ code: 0, signal: null, stdout: "3\n", stderr: "" });
  });

  it("by process.exit with a model open", async () => {
    const finished = await run(
      driver,
      `const model = await loadCheckpoint(path, { driver }); console.log(model.tensors.size); process.exit(4);`,
    );
    expect(finished).toEqual({ code: 4, signal: null, stdout: "2\n", stderr: "" });
  });

  it("by process.exit at any moment of a load", async () => {
    for (const ms of [0, 2, 10]) {
      const body = `const checkpoint = await openCheckpoint(path); loadCheckpoint(checkpoint, { driver }); ${ms === 0 ? "" : `await sleep(${ms});`} process.exit(5);`;
      expect(await run(driver, body), `after ${ms} ms`).toEqual({ code: 5, signal: null, stdout: "", stderr: "" });
    }
  });

  it("with a load in flight that nobody waits for, once it is done", async () => {
    const finished = await run(driver, `loadCheckpoint(path, { driver }).then(({ report }) => console.log(report.bytes));`);
    expect(finished).toEqual({ code: 0, signal: null, stdout: `${24 * MIB + 4000}\n`, stderr: "" });
  });

  it("by an uncaught error with a load in flight", async () => {
    const finished = await run(driver, `loadCheckpoint(path, { driver }); setTimeout(() => { throw new Error("the program's"); }, 3);`);
    expect(finished).toMatchObject({ code: 1, signal: null });
    expect(finished.stderr).toContain("Error: the program's");
  });

  it("with a digest in flight", async () => {
    const body = `const model = await loadCheckpoint(path, { driver }); model.digest(); await sleep(2); process.exit(6);`;
    expect(await run(driver, body)).toEqual({ code: 6, signal: null, stdout: "", stderr: "" });
  });
});

describe.each(copyingDrivers)("a process ends, with a stream of the driver %s,", (driver) => {
  it("in the middle of it", async () => {
    const body = `const stream = streamCheckpoint(path, { driver, maxBytes: 30e6 }); const { value } = await stream.next(); console.log(value.bytes()[9]);`;
    expect(await run(driver, body)).toEqual({ code: 0, signal: null, stdout: "3\n", stderr: "" });
  });

  it("by process.exit in a step", async () => {
    const body = `streamCheckpoint(path, { driver }).next(); await sleep(5); process.exit(8);`;
    expect(await run(driver, body)).toEqual({ code: 8, signal: null, stdout: "", stderr: "" });
  });
});

describe("a signal", () => {
  it.each(["SIGTERM", "SIGINT"] as const)("%s ends a process in the middle of loads", async (signal) => {
    const body = `for (;;) { const model = await loadCheckpoint(path, { driver }); await model.close(); }`;
    const finished = await run("auto", body, (pid) => setTimeout(() => process.kill(pid, signal), 600));
    expect(finished).toEqual({ code: null, signal, stdout: "", stderr: "" });
  });
});
