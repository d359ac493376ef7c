import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, expect, it } from "vitest";
import { VmmArena } from "../../src/arena/arena.js";
import { hostBackend } from "../../src/arena/host-backend.js";
import { StubBackend } from "../../src/arena/stub-backend.js";
import { NixlAgent } from "../../src/transfer/nixl/agent.js";
import type { Registration } from "../../src/transfer/nixl/registration.js";
import { fakesEnv } from "../support/fakes.js";
import { cacheFolder, root } from "../support/folders.js";
import { writeShards } from "../support/loading.js";
import { describeNixl } from "../support/nixl.js";
import { pattern } from "../support/safetensors.js";

const mib = 2 ** 20;

/**
 * Reads one tensor of the offer in argv, says so, then posts a read of all and waits for it as long
 * as argv says. Prints what came of it, waits until nothing is in flight, gives everything back and
 * ends; where the read never settles it leaves out what would wait for it.
 */
const readingProcess = `
import { NixlAgent, VmmArena, hostBackend } from ${JSON.stringify(`${root}dist/index.js`)};
import { once } from "node:events";
const [offer, timeoutMs, settles] = JSON.parse(process.argv[2]);
const arena = new VmmArena({ backend: hostBackend(), totalBytes: 2 ** 30 });
const base = arena.malloc(offer.tensors.reduce((sum, [, , bytes]) => sum + bytes, 0));
const agent = await NixlAgent.create({ name: "reader", plugins: { UCX: {} }, closeTimeoutMs: settles ? 10_000 : 300 });
const registration = await arena.register(agent);
const remoteAgent = await agent.loadRemote(Buffer.from(offer.metadata, "base64"));
async function read(tensors) {
  let at = base;
  const address = BigUint64Array.from(tensors, ([, , bytes]) => (at += BigInt(bytes)) - BigInt(bytes));
  const length = Float64Array.from(tensors, ([, , bytes]) => bytes);
  const remote = { kind: "DRAM", device: 0, address: BigUint64Array.from(tensors, ([, text]) => BigInt(text)), length };
  const local = { kind: "DRAM", device: 0, address, length };
  const transfer = await agent.createTransfer({ operation: "read", local, remote, remoteAgent, registrations: [registration] });
  transfer.post();
  return transfer;
}
if (settles) {
  const first = await read(offer.tensors.slice(0, 1));
  await first.wait({ timeoutMs: 20_000 });
  await first.release();
}
console.log("connected");
await once(process.stdin, "data");
const transfer = await read(offer.tensors);
console.log("posted");
const begin = performance.now();
const failure = await transfer.wait({ timeoutMs }).catch((error) => error);
const told = { code: failure?.code ?? null, waitedMs: performance.now() - begin, plugin: failure?.plugin, busy: "" };
try { arena.close(); } catch (error) { told.busy = error.code; }
console.log(JSON.stringify(told));
process.stdin.destroy();
if (settles) {
  await failure?.settled;
  await transfer.release();
  await agent.close();
  arena.close();
  console.log("closed");
} else {
  console.log(await agent.close().catch((error) => error.code));
}
`;

interface Told {
  readonly code: string | null;
  readonly waitedMs: number;
  readonly busy: string;
}

/**
 * Loads the checkpoint in argv into an arena, registers the arena once, prints metadata and the
 * table of tensors, and ends with stdin.
 */
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

  async function offer(path: string, env: Readonly<Record<string, string>> = {}) {
    const folder = mkdtempSync(join(cacheFolder(), "script-"));
    const script = join(folder, "source.mjs");
    writeFileSync(script, source);
    const child = spawn(process.execPath, [script, path, library], {
      stdio: ["pipe", "pipe", "inherit"],
      env: { ...process.env, ...env },
    });
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

  /** Stops a process, and returns when none of its threads runs any more. */
  async function stop({ pid }: { readonly pid?: number | undefined }): Promise<void> {
    process.kill(Number(pid), "SIGSTOP");
    const states = () => readdirSync(`/proc/${pid}/task`).map((task) => readFileSync(`/proc/${pid}/task/${task}/stat`, "utf8"));
    while (!states().every((stat) => / T /.test(stat.slice(stat.lastIndexOf(")"))))) await sleep(5);
  }

  /** A process that reads what is offered; what it prints comes line by line. */
  async function readingBy(offered: Offer, timeoutMs: number, env: Readonly<Record<string, string>>, settles = true) {
    const folder = mkdtempSync(join(cacheFolder(), "script-"));
    const script = join(folder, "reader.mjs");
    writeFileSync(script, readingProcess);
    const child = spawn(process.execPath, [script, JSON.stringify([offered, timeoutMs, settles])], {
      stdio: ["pipe", "pipe", "inherit"],
      env: { ...process.env, MX_NIXL_LIBRARY: library, ...env },
    });
    const ended = once(child, "exit");
    open.push({
      close: async () => {
        child.kill("SIGKILL");
        await ended;
        rmSync(folder, { recursive: true });
      },
    });
    const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
    return { child, ended, line: async () => (await lines.next()).value as string | undefined };
  }

  // Over TCP every piece needs the other process's own progress, so that a stopped one holds the
  // read in its middle.
  const tcp = { UCX_TLS: "tcp,self", UCX_LOG_LEVEL: "fatal" };

  it("ends with an error within the deadline when the other process is killed in the middle, and exits clean", {
    timeout: 60_000,
  }, async () => {
    const source = await offer(writeShards([tensors(3, 60)]), tcp);
    const reading = await readingBy(source.offered, 20_000, tcp);
    expect(await reading.line()).toBe("connected");
    await stop(source.child);
    reading.child.stdin.write("go");
    expect(await reading.line()).toBe("posted");
    await sleep(300);
    source.child.kill("SIGKILL");
    await source.ended;
    const told = JSON.parse((await reading.line()) ?? "null") as Told;
    expect(told).toMatchObject({ code: "ERR_NIXL_TRANSFER", plugin: "UCX" });
    expect(told.waitedMs).toBeLessThan(20_000);
    expect(await reading.line()).toBe("closed");
    expect(await reading.ended).toEqual([0, null]);
  });

  it("ends at its deadline when the other process does not answer, and exits clean when that is killed", { timeout: 60_000 }, async () => {
    const source = await offer(writeShards([tensors(4, 60)]), tcp);
    const reading = await readingBy(source.offered, 500, tcp);
    expect(await reading.line()).toBe("connected");
    await stop(source.child);
    reading.child.stdin.write("go");
    expect(await reading.line()).toBe("posted");
    const told = JSON.parse((await reading.line()) ?? "null") as Told;
    expect(told).toMatchObject({ code: "ERR_TRANSFER_TIMEOUT", busy: "ERR_ARENA_BUSY" });
    source.child.kill("SIGKILL");
    expect(await reading.line()).toBe("closed");
    expect(await reading.ended).toEqual([0, null]);
  });

  it("ends at its deadline when NIXL never says that the read is over, and exits", { timeout: 60_000 }, async () => {
    const source = await offer(writeShards([tensors(5, 60)]), tcp);
    const plan = "nixl_capi_get_xfer_status#1+=NIXL_CAPI_IN_PROG";
    const reading = await readingBy(source.offered, 1000, { ...tcp, ...fakesEnv({ plan, nixl: library }) }, false);
    expect(await reading.line()).toBe("connected");
    await stop(source.child);
    reading.child.stdin.write("go");
    expect(await reading.line()).toBe("posted");
    // It has been handed to NIXL by then.
    await sleep(300);
    source.child.kill("SIGKILL");
    const told = JSON.parse((await reading.line()) ?? "null") as Told;
    expect(told).toMatchObject({ code: "ERR_TRANSFER_TIMEOUT", busy: "ERR_ARENA_BUSY" });
    expect(await reading.line()).toBe("ERR_TRANSFER_STUCK");
    expect(await reading.ended).toEqual([0, null]);
  });

  it("gives an error for a read that is posted to a process killed before", async () => {
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
    expect([registration.regions, registration.layout, registration.byteLength]).toEqual([2, "runs", 3 * granularity]);
    expect(registration.reason).toBe("any mapped range of the host's memory is one region; 2 runs, for freed allocations left holes");
    expect(registration.covers(third, 2 * granularity)).toBe(true);
    expect(registration.covers(second, 1)).toBe(false);
    const later = arena.malloc(1);
    expect(registration.covers(later, 1)).toBe(false);
    expect(() => arena.free(fourth)).toThrow(expect.objectContaining({ code: "ERR_ARENA_BUSY" }));
    arena.free(later);
    await registration.close();
    const whole = await arena.register(agent, { plugin: "UCX" });
    expect([whole.regions, whole.covers(later, 1)]).toEqual([2, false]);
    await expect(arena.register(agent, { plugin: "POSIX" })).rejects.toMatchObject({ code: "ERR_OPTION_UNKNOWN" });
    await whole.close();
    arena.close();
    await expect(arena.register(agent)).rejects.toMatchObject({ code: "ERR_ARENA_CLOSED" });
    const nothing = new VmmArena({ backend: new StubBackend(), totalBytes: 2 ** 30 });
    nothing.malloc(1);
    await expect(nothing.register(agent)).rejects.toMatchObject({ code: "ERR_ARENA_NOT_LOADABLE" });
  });

  it("refuses to move what was allocated after registering, until it is registered again", async () => {
    const arena = new VmmArena({ backend: hostBackend(), totalBytes: 64 * mib });
    open.push(arena);
    const agent = await NixlAgent.create({ name: "grown", plugins: { UCX: {} }, library });
    open.push(agent);
    const source = arena.malloc(1);
    const registration = await arena.register(agent);
    const grown = arena.malloc(1);
    const move = (into: bigint, registrations: readonly Registration[]) =>
      agent.createTransfer({
        operation: "read",
        local: { kind: "DRAM", device: 0, address: BigUint64Array.of(into), length: Float64Array.of(1) },
        remote: { kind: "DRAM", device: 0, address: BigUint64Array.of(source), length: Float64Array.of(1) },
        remoteAgent: "grown",
        registrations,
      });
    await expect(move(grown, [registration])).rejects.toMatchObject({
      code: "ERR_NIXL_NOT_REGISTERED",
      address: `0x${grown.toString(16)}`,
      length: 1,
      message: expect.stringContaining("lie in none of the 1 registrations given"),
    });
    await expect(move(0n, [registration])).rejects.toMatchObject({ code: "ERR_NIXL_NOT_REGISTERED" });
    const again = await arena.register(agent);
    const transfer = await move(grown, [registration, again]);
    await transfer.release();
  });
});
