import { expect, it } from "vitest";
import { VmmArena } from "../../src/arena/arena.js";
import { hostBackend } from "../../src/arena/host-backend.js";
import { openCheckpoint } from "../../src/checkpoint/open.js";
import { loadCheckpoint } from "../../src/loader/load-checkpoint.js";
import { planLoad } from "../../src/plan/plan-load.js";
import { NixlAgent } from "../../src/transfer/nixl/agent.js";
import { writeCheckpoint } from "../support/loading.js";

const path = () => writeCheckpoint({ a: { dtype: "U8", shape: [3] } });
// As a program without types would pass them.
const options = (given: object) => given as never;

it.each<[what: string, option: string, call: () => unknown]>([
  ["openCheckpoint", "bogus", () => openCheckpoint(path(), options({ bogus: 1 }))],
  ["loadCheckpoint", "timeout", () => loadCheckpoint(path(), options({ timeout: 1 }))],
  ["keepPages", "idle", () => loadCheckpoint(path(), options({ keepPages: { maxBytes: 1, idle: 5 } }))],
  ["planLoad", "bogus", async () => planLoad(await openCheckpoint(path()), options({ bogus: 1 }))],
  ["VmmArena", "total", () => new VmmArena(options({ backend: hostBackend(), total: 5 }))],
  ["NixlAgent.create", "bogus", () => NixlAgent.create(options({ name: "a", plugins: { UCX: {} }, bogus: 1 }))],
])("%s refuses the option %s, which does not exist", async (_, option, call) => {
  await expect((async () => await call())()).rejects.toMatchObject({ code: "ERR_OPTION_UNKNOWN", option });
});

it.each<[what: string, call: () => unknown]>([
  ["keepPages: true", () => loadCheckpoint(path(), options({ keepPages: true }))],
  ["arena.register()", () => arenaOf((arena) => arena.register(undefined as never))],
  ["arena.register({})", () => arenaOf((arena) => arena.register({} as never))],
])("%s is ERR_OPTION_INVALID", async (_, call) => {
  await expect((async () => await call())()).rejects.toMatchObject({ code: "ERR_OPTION_INVALID" });
});

function arenaOf<T>(use: (arena: VmmArena) => T): T {
  using arena = new VmmArena({ backend: hostBackend(), totalBytes: 2 ** 21 });
  return use(arena);
}
