import { spawnSync } from "node:child_process";
import { describe, expect, it } from "vitest";
import { VmmArena } from "../../src/arena/arena.js";
import { hostBackend } from "../../src/arena/host-backend.js";
import { loadCheckpoint } from "../../src/loader/load-checkpoint.js";
import { copyingDrivers, writeCheckpoint } from "../support/loading.js";
import { mappingsOf } from "../support/mappings.js";
import { unavailable } from "../support/unavailable.js";

const MIB = 2 ** 20;
const content = Buffer.alloc(16 * MIB, "fork");
const checkpoint = () => writeCheckpoint({ a: { dtype: "U8", shape: [content.length], bytes: content } });

function kept(address: bigint, bytes: number): boolean {
  const mappings = mappingsOf(address, bytes);
  return mappings.length > 0 && mappings.every(({ flags }) => flags.includes("dc"));
}

describe.each([...copyingDrivers, "map"] as const)("memory filled by the driver %s", (driver) => {
  it("is not inherited by child processes, whatever was freed beside it", async () => {
    const path = checkpoint();
    const model = await loadCheckpoint(path, { driver });
    const { arena } = model;
    expect(kept(arena.base, arena.totalBytes)).toBe(true);
    await model.close();
    const shared = await loadCheckpoint(path, { driver });
    await using second = await loadCheckpoint(path, { driver });
    await shared.close();
    expect(kept(second.arena.base, second.arena.totalBytes)).toBe(true);
  });
});

it("memory of an arena keeps out of child processes before, between and after its allocations", () => {
  using arena = new VmmArena({ backend: hostBackend(), totalBytes: 16 * MIB });
  const [first, second] = [arena.malloc(2 * MIB), arena.malloc(2 * MIB)];
  arena.free(first);
  expect(kept(arena.base, 16 * MIB)).toBe(true);
  new Uint8Array(arena.view(second, MIB)).fill(1);
  arena.free(second);
  expect(kept(arena.base, 16 * MIB)).toBe(true);
});

it("huge pages stay whole when processes are spawned and the memory is written again", async (context) => {
  await using model = await loadCheckpoint(checkpoint());
  const { native, base } = model.arena;
  const before = native.hugePageBytes(base, content.length);
  if (before === null || before === 0) unavailable(context, "huge pages");
  const bytes = model.tensors.get("a")?.bytes() as Uint8Array;
  for (let round = 0; round < 5; round++) {
    expect(spawnSync("/bin/true").status).toBe(0);
    for (let at = 0; at < bytes.length; at += 4096) bytes[at] = round;
  }
  expect(native.hugePageBytes(base, content.length)).toBe(before);
});
