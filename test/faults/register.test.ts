import { join } from "node:path";
import { expect, it } from "vitest";
import { fakesEnv, type Ledger, readLedger } from "../support/fakes.js";
import { root, temporaryFolder } from "../support/folders.js";
import { describeNixl } from "../support/nixl.js";
import { runNode } from "../support/run-node.js";
import { sweep } from "../support/sweep.js";

/**
 * An arena on cuda:0 that is registered with GDS_MT, in one region if the driver proved it, asked
 * to close meanwhile, and given back. What cannot be given back at its turn is tried again by the
 * agent's end, and the arena after that.
 */
const life = `
import { cudaBackend, NixlAgent, VmmArena } from ${JSON.stringify(`${root}dist/index.js`)};
import { subscribe } from "node:diagnostics_channel";
const told = { thrown: [], published: [], busy: [], regions: 0 };
subscribe("modelexpress", ({ event, error }) => {
  if (event === "arena.release-failed") told.published.push(error.code);
});
async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    told.thrown.push(error.code ?? String(error));
  }
}
function busy(work) {
  try {
    work();
    told.busy.push("no");
  } catch (error) {
    told.busy.push(error.code);
  }
}
const arena = await attempt(() => new VmmArena({ backend: cudaBackend({ device: 0 }) }));
const first = arena && (await attempt(() => arena.malloc(1)));
const second = first && (await attempt(() => arena.malloc(3_000_000)));
const agent = second && (await attempt(() => NixlAgent.create({ name: "register", plugins: { GDS_MT: { thread_count: "2" } }, progressThread: false })));
const registration = agent && (await attempt(() => arena.register(agent)));
if (registration) {
  told.regions = registration.regions;
  busy(() => arena.close());
  busy(() => arena.free(second));
  await attempt(() => registration.close());
}
if (agent) await attempt(() => agent.close());
if (arena) await attempt(() => arena[Symbol.asyncDispose]());
console.log(JSON.stringify(told));
`;

interface Told {
  readonly thrown: readonly string[];
  readonly published: readonly string[];
  readonly busy: readonly string[];
  readonly regions: number;
}

/**
 * Registers an arena on cuda:0 as argv says: plugin, allocations to make, those to free again,
 * option. Prints how.
 */
const layout = `
import { cudaBackend, NixlAgent, VmmArena } from ${JSON.stringify(`${root}dist/index.js`)};
const [plugin, count, freed, spanAllocations, spanHoles] = JSON.parse(process.argv[2]);
const arena = new VmmArena({ backend: cudaBackend({ device: 0 }) });
const agent = await NixlAgent.create({ name: "layout", plugins: { [plugin]: {} }, progressThread: false });
const addresses = Array.from({ length: count }, () => arena.malloc(3_000_000));
for (const at of freed) arena.free(addresses[at]);
const registration = await arena.register(agent, { spanAllocations, spanHoles });
const { regions, layout, reason, byteLength } = registration;
const inside = registration.covers(addresses[count - 1], 3_000_000);
const later = arena.malloc(1);
const grown = registration.covers(later, 1);
arena.free(later);
await registration.close();
await agent.close();
await arena[Symbol.asyncDispose]();
console.log(JSON.stringify({ regions, layout, reason, byteLength, inside, grown }));
`;

interface Layout {
  readonly regions: number;
  readonly layout: string;
  readonly reason: string;
  readonly byteLength: number;
  readonly inside: boolean;
  readonly grown: boolean;
}

describeNixl("arena.register on CUDA", (nixl) => {
  type Scenario = readonly [plugin: string, allocations: number, freed: readonly number[], spanAllocations?: boolean, spanHoles?: boolean];
  const one = 4 * 2 ** 20;

  it.each<[what: string, plan: string, scenario: Scenario, regions: number, layout: string, reason: RegExp, proofs: readonly boolean[]]>([
    ["one allocation", "", ["GDS_MT", 1, []], 1, "one-region", /^an allocation is one physical handle$/, [true]],
    ["one allocation, by UCX", "", ["UCX", 1, []], 1, "one-region", /^an allocation is one physical handle$/, [true]],
    [
      "one that gives no dma-buf",
      "dmabuf=none",
      ["GDS_MT", 1, []],
      1,
      "one-region",
      /not by dma-buf: 4194304 bytes of cuda:0 .*NOT_SUPPORTED/,
      [false],
    ],
    ["several, for cuFile", "dmabuf=any", ["GDS_MT", 3, []], 3, "allocations", /a region of GDS_MT may not span several/, []],
    ["several, for UCX", "dmabuf=any", ["UCX", 3, []], 3, "allocations", /a region of UCX may not span several/, []],
    ["several, proven", "dmabuf=any", ["UCX", 3, [], true], 1, "one-region", /as one dma-buf$/, [true]],
    ["several, refused", "", ["GDS_MT", 3, [], true], 3, "allocations", /12582912 bytes of cuda:0 at .* cannot be one region/, [false]],
    [
      "several, refused, by UCX",
      "",
      ["UCX", 3, [], true],
      3,
      "allocations",
      /12582912 bytes of cuda:0 at .* cannot be one region/,
      [false],
    ],
    ["holes", "", ["GDS_MT", 4, [1, 2]], 2, "runs", /one physical handle; 2 runs, for freed allocations left holes$/, [true]],
    ["holes between several, proven", "dmabuf=any", ["UCX", 5, [2], true], 2, "runs", /2 runs/, [true, true]],
    ["holes between several, refused", "", ["UCX", 4, [0, 2], true], 2, "runs", /2 runs/, [true]],
    ["holes taken in, proven", "dmabuf=holes", ["GDS_MT", 5, [0, 2], true, true], 1, "one-region", /holes included$/, [true]],
    [
      "holes taken in, once their memory is unmapped",
      "dmabuf=holes;cuMemUnmap#1-2=block:200;nixl_capi_deregister_mem#1=block:400",
      ["GDS_MT", 5, [1, 3], true, true],
      1,
      "one-region",
      /holes included$/,
      [true],
    ],
    [
      "holes taken in, refused",
      "dmabuf=any",
      ["GDS_MT", 4, [2], true, true],
      2,
      "runs",
      /^the holes are left out: .*cannot be one region/,
      [false, true, true],
    ],
  ])("%s", async (_, plan, scenario, regions, wanted, reason, proofs) => {
    const ledger = join(temporaryFolder(), "ledger");
    const env = { ...fakesEnv({ plan, ledger, nixl }), NIXL_LOG_LEVEL: "FATAL" };
    const { code, stdout, stderr } = await runNode(layout, { env, args: [JSON.stringify(scenario)] });
    expect(code, stderr).toBe(0);
    const told = JSON.parse(stdout) as Layout;
    const [, allocations, freed] = scenario;
    const alive = Array.from({ length: allocations }, (_, at) => at).filter((at) => !freed.includes(at));
    const taken = plan.includes("dmabuf=holes") ? Math.max(...alive) - Math.min(...alive) + 1 : alive.length;
    const byteLength = taken * one;
    expect(told).toEqual({ regions, layout: wanted, reason: expect.stringMatching(reason), byteLength, inside: true, grown: false });
    const { calls, open, killed, loaded } = readLedger(ledger);
    expect(loaded.some((file) => file.includes("libcuda.so.1"))).toBe(true);
    expect([open, killed]).toEqual([[], undefined]);
    const asked = calls.filter(({ name }) => name === "cuMemGetHandleForAddressRange").map(({ status }) => status === 0);
    // UCX asks the driver by itself, too.
    if (scenario[0] === "GDS_MT") expect(asked).toEqual(proofs);
    else expect(asked.includes(false)).toBe(proofs.includes(false));
  });
});

describeNixl("MX_ARENA_SINGLE_MR", (nixl) => {
  it.each([
    ["1", 1, "one-region"],
    ["0", 3, "allocations"],
  ])("%s decides where the options do not", async (value, regions, wanted) => {
    const env = { ...fakesEnv({ plan: "dmabuf=holes", nixl }), NIXL_LOG_LEVEL: "FATAL", MX_ARENA_SINGLE_MR: value };
    const { code, stdout, stderr } = await runNode(layout, { env, args: [JSON.stringify(["GDS_MT", 4, [1]])] });
    expect(code, stderr).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({ regions, layout: wanted });
  });
});

describeNixl("an arena on CUDA that is registered and closed", (nixl) => {
  const run = async (plan: string): Promise<{ told: Told; ledger: Ledger }> => {
    const ledger = join(temporaryFolder(), "ledger");
    const { code, signal, stdout, stderr } = await runNode(life, { env: { ...fakesEnv({ plan, ledger, nixl }), NIXL_LOG_LEVEL: "FATAL" } });
    expect([plan, code, signal], stderr).toEqual([plan, 0, null]);
    return { told: JSON.parse(stdout) as Told, ledger: readLedger(ledger) };
  };

  it("is one region for each physical handle, busy while it is registered, and deregistered before it is unmapped", async () => {
    const { told, ledger } = await run("");
    expect(told).toEqual({ thrown: [], published: [], busy: ["ERR_ARENA_BUSY", "ERR_ARENA_BUSY"], regions: 2 });
    expect([ledger.open, ledger.killed]).toEqual([[], undefined]);
    const closed = ledger.events.filter(({ what }) => what === "closed").map(({ kind }) => kind);
    expect(closed.lastIndexOf("nixl-registration")).toBeLessThan(closed.indexOf("nixl-agent"));
    expect(closed.indexOf("nixl-agent")).toBeLessThan(closed.indexOf("mapping"));
    expect(closed.lastIndexOf("handle")).toBeLessThan(closed.indexOf("reservation"));
  });

  it("survives the failure of any call of any function", { timeout: 240_000 }, async () => {
    const { ledger } = await run("");
    await sweep(ledger.counts, async (plan) => {
      const { told, ledger } = await run(plan);
      return { ...told, ledger };
    });
  });
});
