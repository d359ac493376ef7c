import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { afterEach, expect, it } from "vitest";
import { VmmArena } from "../../src/arena/arena.js";
import { hostBackend } from "../../src/arena/host-backend.js";
import { NixlAgent } from "../../src/transfer/nixl/agent.js";
import { cacheFolder, root } from "../support/folders.js";
import { writeShards } from "../support/loading.js";
import { describeNixl } from "../support/nixl.js";
import { pattern } from "../support/safetensors.js";

const mib = 2 ** 20;

/** Loads the checkpoint in argv into an arena, registers the arena once, prints metadata and the table of tensors, and ends with stdin. */
const source = `
import { loadCheckpoint, VmmArena, hostBackend } from ${JSON.stringify(`${root}dist/index.js`)};
import { NixlAgent } from ${JSON.stringify(`${root}dist/transfer/nixl/agent.js`)};
const [path, library] = process.argv.slice(2);
const arena = new VmmArena({ backend: hostBackend(), totalBytes: 2 ** 30 });
const model = await loadCheckpoint(path, { arena });
const agent = await NixlAgent.create({ name: "source", plugins: { UCX: {} }, library });
const registration = await arena.register(agent);
const tensors = [...model.tensors.values()].filter(({ byteLength }) => byteLength > 0).map(({ name, address, byteLength }) => [name, String(address), byteLength]);
const metadata = Buffer.from(await agent.exportMetadata()).toString("base64");
console.log(JSON.stringify({ metadata, tensors, regions: registration.pieces.length.length }));
process.stdin.resume();
await new Promise((resolve) => process.stdin.on("end", resolve));
await registration.close();
await agent.close();
await model.close();
arena.close();
`;

interface Offer {
  readonly metadata: string;
  readonly tensors: readonly (readonly [name: string, address: string, byteLength: number])[];
  readonly regions: number;
}

describeNixl("arena.register and reads by another process over UCX", (library) => {
  const open: { close(): unknown }[] = [];
  afterEach(async () => {
    while (open.length > 0) await open.pop()?.close();
  });

  const tensors = (seed: number, count: number) =>
    Object.fromEntries(
      Array.from({ length: count }, (_, at) => {
        const bytes = at % 5 === 0 ? 0 : 1000 * at + seed;
        const name = `layer.${seed}.${at}`;
        return [name, { dtype: "U8", shape: [bytes], bytes: pattern(name, bytes) }] as const;
      }),
    );

  async function offer(path: string) {
    const folder = mkdtempSync(join(cacheFolder(), "script-"));
    const script = join(folder, "source.mjs");
    writeFileSync(script, source);
    const child = spawn(process.execPath, [script, path, library], { stdio: ["pipe", "pipe", "inherit"] });
    const ended = once(child, "exit");
    open.push({
      close: async () => {
        child.kill("SIGKILL");
        await ended;
        rmSync(folder, { recursive: true });
      },
    });
    const [line] = (await Promise.race([once(createInterface(child.stdout), "line"), ended.then(() => ["null"])])) as [string];
    return { child, ended, offered: JSON.parse(line) as Offer };
  }

  async function reader(bytes: number) {
    const arena = new VmmArena({ backend: hostBackend(), totalBytes: 64 * mib });
    open.push(arena);
    const base = arena.malloc(bytes);
    const agent = await NixlAgent.create({ name: "reader", plugins: { UCX: {} }, library, closeTimeoutMs: 5000 });
    open.push(agent);
    const registration = await arena.register(agent);
    return { arena, base, agent, registration };
  }

  function transferOf({ base, registration }: Awaited<ReturnType<typeof reader>>, offered: Offer) {
    let at = base;
    const address = offered.tensors.map(([, , length]) => {
      const here = at;
      at += BigInt(length);
      return here;
    });
    const length = Float64Array.from(offered.tensors, ([, , bytes]) => bytes);
    return {
      operation: "read",
      local: { kind: "DRAM", device: 0, address: BigUint64Array.from(address), length },
      remote: { kind: "DRAM", device: 0, address: BigUint64Array.from(offered.tensors, ([, text]) => BigInt(text)), length },
      registrations: [registration],
    } as const;
  }

  it("reads every tensor of a loaded checkpoint in one transfer", async () => {
    const shards = [tensors(1, 40), tensors(2, 40)];
    const { child, ended, offered } = await offer(writeShards(shards));
    const wanted = new Map(shards.flatMap((shard) => Object.entries(shard)));
    expect([offered.regions, offered.tensors.length]).toEqual([1, 64]);
    const bytes = offered.tensors.reduce((sum, [, , length]) => sum + length, 0);
    const reading = await reader(bytes);
    const remoteAgent = await reading.agent.loadRemote(Buffer.from(offered.metadata, "base64"));
    expect(remoteAgent).toBe("source");
    const transfer = await reading.agent.createTransfer({ ...transferOf(reading, offered), remoteAgent });
    transfer.post();
    await transfer.wait({ timeoutMs: 20_000 });
    let at = reading.base;
    for (const [name, , length] of offered.tensors) {
      expect([name, Buffer.from(reading.arena.view(at, length)).equals(wanted.get(name)?.bytes ?? Buffer.alloc(0))]).toEqual([name, true]);
      at += BigInt(length);
    }
    await transfer.release();
    await reading.agent.forgetRemote(remoteAgent);
    await reading.agent.close();
    child.stdin.end();
    expect(await ended).toEqual([0, null]);
  });

  it("ends with an error within the deadline when the other process is killed", async () => {
    const { child, ended, offered } = await offer(writeShards([tensors(3, 30)]));
    const reading = await reader(4 * mib);
    const remoteAgent = await reading.agent.loadRemote(Buffer.from(offered.metadata, "base64"));
    const transfer = await reading.agent.createTransfer({ ...transferOf(reading, offered), remoteAgent });
    child.kill("SIGKILL");
    await ended;
    transfer.post();
    const error = await transfer.wait({ timeoutMs: 3000 }).catch((thrown) => thrown);
    expect(["ERR_NIXL_TRANSFER", "ERR_TRANSFER_TIMEOUT"]).toContain(error.code);
    await error.settled;
    await transfer.release();
    await reading.agent.close();
    reading.arena.close();
  });

  it("registers runs of allocations, knows what it covers, and holds them", async () => {
    const arena = new VmmArena({ backend: hostBackend(), totalBytes: 64 * mib });
    open.push(arena);
    const agent = await NixlAgent.create({ name: "runs", plugins: { UCX: {} }, library });
    open.push(agent);
    await expect(arena.register(agent)).rejects.toMatchObject({ code: "ERR_NIXL_REGISTER" });
    const [first, second, third] = [arena.malloc(1), arena.malloc(1), arena.malloc(1)];
    arena.free(second);
    const fourth = arena.malloc(1);
    const registration = await arena.register(agent);
    const { granularity } = arena;
    expect([...registration.pieces.address]).toEqual([first, third]);
    expect([...registration.pieces.length]).toEqual([granularity, 2 * granularity]);
    expect(registration.covers(third, 2 * granularity)).toBe(true);
    expect(registration.covers(second, 1)).toBe(false);
    const later = arena.malloc(1);
    expect(registration.covers(later, 1)).toBe(false);
    expect(() => arena.free(fourth)).toThrow(expect.objectContaining({ code: "ERR_ARENA_BUSY" }));
    arena.free(later);
    await registration.close();
    arena.close();
  });
});
