import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { atFault, fakesEnv, type Ledger, readLedger } from "../support/fakes.js";
import { makeFolder, root, temporaryFolder } from "../support/folders.js";
import { describeNixl } from "../support/nixl.js";
import { runNode } from "../support/run-node.js";
import { planned, sweep } from "../support/sweep.js";

const fileBytes = 400_000;

/**
 * A load by GDS_MT into memory of cuda:0 that is two windows long, of the file and with the options
 * in argv. Prints what was thrown where, whether every byte is right, and what went wrong in
 * clean-up.
 */
const load = `${atFault}
import { GdsTransferManager } from ${JSON.stringify(`${root}dist/transfer/gds/manager.js`)};
import { readFileSync } from "node:fs";
import { subscribe } from "node:diagnostics_channel";
const [file, text] = process.argv.slice(2);
const options = JSON.parse(text);
const content = readFileSync(file);
const told = { thrown: [], published: [], right: null, report: null, settled: false };
subscribe("modelexpress", ({ event, error }) => {
  if (event === "transfer.clean-up-failed" || event === "arena.release-failed" || event === "gds.release-failed") told.published.push([event, error.code]);
});
async function attempt(step, work) {
  try {
    return await work();
  } catch (error) {
    const { code, operation, status, plugin, file, offset, length } = error;
    told.thrown.push([step, code ?? String(error), operation ?? null, status ?? null, plugin ?? null, file ?? null, offset ?? null, length ?? null]);
    if (options.awaitSettled ?? true) told.settled = (await error.settled, true);
  }
}
const { ranges = [[4096, 150_000], [0, 10], [200_001, 199_999]] } = options;
const gds = new GdsTransferManager({ agentName: "faults", device: "cuda:0", threads: 2, maxChunkBytes: 96_000, closeTimeoutMs: 500, ...options });
if (await attempt("initialize", () => gds.initialize().then(() => true))) {
  const aborting = new AbortController();
  if (options.abortAtFault) atFault(() => aborting.abort());
  const batch = await attempt("load", () => gds.batchLoadFile(file, content.length, ranges, { signal: aborting.signal }));
  if (batch !== undefined) {
    told.report = batch.report;
    const copies = await attempt("copy", () => Promise.all(batch.buffers.map((buffer) => buffer.copyToHost())));
    told.right = copies?.every((copy, row) => content.subarray(ranges[row][0], ranges[row][0] + ranges[row][1]).equals(copy)) ?? null;
    await attempt("close", () => batch.close());
  }
  await attempt("shutdown", () => gds.shutdown());
}
console.log(JSON.stringify(told));
`;

interface Told {
  readonly thrown: readonly (readonly [
    string,
    string,
    string | null,
    string | null,
    string | null,
    string | null,
    number | null,
    number | null,
  ])[];
  readonly published: readonly (readonly [string, string])[];
  readonly right: boolean | null;
  readonly report: { readonly windows: number; readonly chunks: number; readonly path: string } | null;
  readonly settled: boolean;
}

describeNixl("a load by the real GDS_MT over the stand-ins", (nixl) => {
  let file = "";
  const run = async (
    plan: string,
    options: Record<string, unknown> = {},
    more: Record<string, string> = {},
  ): Promise<{ told: Told; ledger: Ledger }> => {
    const ledger = join(temporaryFolder(), "ledger");
    const env = { ...fakesEnv({ plan, ledger, nixl }), NIXL_LOG_LEVEL: "FATAL", ...more };
    const { code, signal, stdout, stderr } = await runNode(load, { env, args: [file, JSON.stringify(options)] });
    expect([plan, code, signal], stderr).toEqual([plan, 0, null]);
    return { told: JSON.parse(stdout) as Told, ledger: readLedger(ledger) };
  };

  const folder = makeFolder();
  /**
   * cuFile's limit on registered bytes cuts windows of two chunks: without one a window has no less
   * than 256 MiB.
   */
  const smallWindows = { CUFILE_ENV_PATH_JSON: join(folder, "small-windows.json") };
  beforeAll(() => {
    file = join(folder, "weights.bin");
    writeFileSync(smallWindows.CUFILE_ENV_PATH_JSON, '{ "properties": { "max_device_pinned_mem_size_kb": 375 } }');
    writeFileSync(file, Buffer.from(Uint8Array.from({ length: fileBytes }, (_, at) => (at * 2_654_435_761) >>> 13)));
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  it("brings every byte, and leaves nothing", async () => {
    const { told, ledger } = await run("", {}, smallWindows);
    expect([told.thrown, told.published, told.right]).toEqual([[], [], true]);
    expect(told.report).toMatchObject({ windows: 3, chunks: 6, path: "unknown" });
    expect([ledger.open, ledger.killed, ledger.ended]).toEqual([[], undefined, true]);
    expect(ledger.counts).toMatchObject({ cuFileRead: 6, cuFileBufRegister: 6, cuFileHandleRegister: 1, nixl_capi_create_xfer_req: 3 });
    // One thread makes all calls of the agent.
    expect(
      new Set(ledger.calls.filter(({ name }) => name.startsWith("nixl_capi_") && !name.endsWith("is_stub")).map(({ thread }) => thread))
        .size,
    ).toBe(1);
  });

  it("survives the failure of any call of any function", { timeout: 240_000 }, async () => {
    const { ledger: clean } = await run("", {}, smallWindows);
    expect(planned(clean.counts).length).toBeGreaterThan(120);
    await sweep(clean.counts, async (plan) => {
      const { told, ledger } = await run(plan, {}, smallWindows);
      if (told.thrown.length === 0) expect([plan, told.right]).toEqual([plan, true]);
      return { thrown: told.thrown.map(([, code]) => code), published: told.published.map(([, code]) => code), ledger };
    });
  });

  it("tells a short read with plugin, file and range, and gives everything back", async () => {
    const { told, ledger } = await run("cuFileRead#*=short:100", { maxChunkBytes: 2 ** 20 });
    const [step, code, operation, status, plugin, path, offset, length] = told.thrown[0] ?? [];
    expect([step, code, operation, status, plugin, path]).toEqual([
      "load",
      "ERR_NIXL_TRANSFER",
      "nixl_capi_get_xfer_status",
      "NIXL_CAPI_ERROR_BACKEND",
      "GDS_MT",
      file,
    ]);
    expect([offset, length]).toEqual([0, fileBytes]);
    expect([told.thrown.length, ledger.open]).toEqual([1, []]);
  });

  it("registers the very bases that are read, so that cuFile reads into them", async () => {
    const ranges = [
      [4096, 196_608],
      [8192, 65_536],
    ];
    const aligned = await run("", { ranges, maxChunkBytes: 65_536 });
    expect([aligned.told.right, aligned.ledger.amounts]).toEqual([true, { direct: 262_144 }]);
    const whole = await run("", { ranges, maxChunkBytes: 65_536, registration: "whole" });
    expect(whole.told.right).toBe(true);
    expect(whole.ledger.amounts.direct).toBeLessThan(262_144);
  });

  it("keeps under cuFile's limit on registered bytes window by window, and refuses one registration above it before posting", async () => {
    const ranges = [[0, 327_680]];
    const config = join(folder, "cufile.json");
    writeFileSync(config, '{ "properties": { "max_device_pinned_mem_size_kb": 200 } }');
    const plan = "registered-bytes=204800";
    const chunks = await run(plan, { ranges, maxChunkBytes: 65_536, threads: 4 }, { CUFILE_ENV_PATH_JSON: config });
    expect([chunks.told.right, chunks.told.report?.windows, chunks.ledger.amounts, chunks.ledger.open]).toEqual([
      true,
      5,
      { direct: 327_680 },
      [],
    ]);
    const whole = await run(plan, { ranges, registration: "whole" }, { CUFILE_ENV_PATH_JSON: config });
    expect(whole.told.thrown.map(([step, code]) => [step, code])).toEqual([["load", "ERR_GDS_REGISTRATION_LIMIT"]]);
    expect([whole.ledger.open, whole.ledger.counts.cuFileBufRegister, whole.ledger.counts.cuMemCreate]).toEqual([[], undefined, undefined]);
  });

  it("reads through cuFile's buffers where registering fails, and with one registration", async () => {
    const refused = await run("cuFileBufRegister#*=CU_FILE_INVALID_MAPPING_SIZE");
    expect([refused.told.right, refused.ledger.open]).toEqual([true, []]);
    expect(Object.keys(refused.ledger.amounts)).not.toContain("direct");
    const whole = await run("", { registration: "whole" });
    expect([whole.told.right, whole.ledger.open, whole.ledger.counts.cuFileBufRegister]).toEqual([true, [], 1]);
    const compat = await run("gds=compat");
    expect([compat.told.right, compat.ledger.open]).toEqual([true, []]);
  });

  it("says which file cannot be registered", async () => {
    const { told, ledger } = await run("gds=refused");
    expect(told.thrown[0]?.slice(0, 6)).toEqual([
      "load",
      "ERR_NIXL_REGISTER",
      "nixl_capi_register_mem",
      "NIXL_CAPI_ERROR_BACKEND",
      "GDS_MT",
      file,
    ]);
    expect(ledger.open).toEqual([]);
  });

  it.each([
    ["deadline", { timeoutMs: 1000 }, "ERR_TRANSFER_TIMEOUT"],
    ["abort", { abortAtFault: true }, "ERR_ABORTED"],
  ])("ends a read that hangs by its %s, unmaps nothing under it, and lets the process exit", async (_, options, code) => {
    const { told, ledger } = await run("cuFileRead#2=hang", { ...options, awaitSettled: false });
    expect(told.thrown[0]?.slice(0, 2).map(String)).toEqual(["load", code]);
    expect(told.thrown[1]?.slice(0, 2)).toEqual(["shutdown", "ERR_TRANSFER_STUCK"]);
    expect(ledger.killed).toBeUndefined();
    expect(ledger.open.map(({ kind }) => kind)).toEqual(expect.arrayContaining(["mapping", "cufile-file", "cufile-io"]));
    expect(ledger.counts.cuMemUnmap ?? 0).toBe(0);
  });

  it("gives the memory back as soon as a slow read of an aborted batch has ended", async () => {
    const { told, ledger } = await run("cuFileRead#2=block:700", { abortAtFault: true });
    expect([told.thrown.map(([step]) => step), told.settled, ledger.open, ledger.killed]).toEqual([["load"], true, [], undefined]);
  });
});
