import { expect, it } from "vitest";
import { loadCheckpoint } from "../../src/loader/load-checkpoint.js";
import { NixlAgent } from "../../src/transfer/nixl/agent.js";
import { failureOf, writeCheckpoint } from "../support/loading.js";
import { describeNixl } from "../support/nixl.js";
import { pattern } from "../support/safetensors.js";

describeNixl("a loaded model that is registered", (library) => {
  // The pages of a large one are given back before its arena is closed.
  it.each([2, 65])("of %i MiB is not closed and keeps its bytes until the registration is closed", async (mib) => {
    const model = await loadCheckpoint(writeCheckpoint({ a: { dtype: "U8", shape: [mib * 2 ** 20] } }));
    await using agent = await NixlAgent.create({ name: "holder", plugins: { POSIX: {} }, library });
    const registration = await model.arena.register(agent);
    const tensor = model.tensors.get("a");
    const bytes = tensor?.bytes();
    expect(registration.covers(tensor?.address ?? 0n, tensor?.byteLength ?? 0)).toBe(true);
    expect(await failureOf(model.close())).toMatchObject({ code: "ERR_ARENA_BUSY" });
    expect(bytes !== undefined && Buffer.compare(bytes, pattern("a", bytes.length))).toBe(0);
    expect(model.arena.closed).toBe(false);
    await registration.close();
    await model.close();
    expect([bytes?.length, model.arena.closed]).toEqual([0, true]);
  });
});
