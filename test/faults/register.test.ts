import { join } from "node:path";
import { expect, it } from "vitest";
import { fakesEnv, type Ledger, readLedger } from "../support/fakes.js";
import { root, temporaryFolder } from "../support/folders.js";
import { describeNixl } from "../support/nixl.js";
import { runNode } from "../support/run-node.js";
import { sweep } from "../support/sweep.js";

/**
 * An arena on cuda:0 that is registered with GDS_MT, asked to close meanwhile, and given back. What cannot be given back at its turn is tried
 * again by the agent's end, and the arena after that.
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
  told.regions = registration.pieces.length.length;
  busy(() => arena.close());
  busy(() => arena.free(second));
  await attempt(() => registration.close());
}
if (agent) await attempt(() => agent.close());
if (arena) await attempt(() => arena.close());
console.log(JSON.stringify(told));
`;

interface Told {
  readonly thrown: readonly string[];
  readonly published: readonly string[];
  readonly busy: readonly string[];
  readonly regions: number;
}

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
