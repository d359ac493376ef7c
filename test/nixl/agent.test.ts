import { closeSync, fstatSync, openSync, readdirSync, readFileSync, truncateSync, writeFileSync } from "node:fs";
import fs from "node:fs/promises";
import { join } from "node:path";
import { afterEach, expect, it, vi } from "vitest";
import { VmmArena } from "../../src/arena/arena.js";
import { hostBackend } from "../../src/arena/host-backend.js";
import { addon } from "../../src/native/load.js";
import { NixlAgent, type NixlAgentOptions } from "../../src/transfer/nixl/agent.js";
import type { Pieces } from "../../src/transfer/nixl/descriptors.js";
import { temporaryFolder } from "../support/folders.js";
import { describeNixl } from "../support/nixl.js";

const mib = 2 ** 20;

/** Bytes that differ at every offset of a few MiB. */
function pattern(length: number, seed = 1): Buffer {
  const words = new Uint32Array(Math.ceil(length / 4));
  for (let at = 0; at < words.length; at++) words[at] = Math.imul(at + seed, 2_654_435_761);
  return Buffer.from(words.buffer, 0, length);
}

function fileOf(bytes: Uint8Array): string {
  const file = join(temporaryFolder(), "bytes.bin");
  writeFileSync(file, bytes);
  return file;
}

function pieces(kind: Pieces["kind"], device: number, list: readonly (readonly [bigint, number])[]): Pieces {
  return {
    kind,
    device,
    address: BigUint64Array.from(list, ([address]) => address),
    length: Float64Array.from(list, ([, length]) => length),
  };
}

function threadNames(): string[] {
  return readdirSync("/proc/self/task").map((task) => {
    try {
      return readFileSync(`/proc/self/task/${task}/comm`, "utf8").trim();
    } catch {
      return "";
    }
  });
}

describeNixl("NixlAgent on the real NIXL, POSIX plugin", (library) => {
  const open: { close(): unknown }[] = [];
  afterEach(async () => {
    while (open.length > 0) await open.pop()?.close();
  });

  async function makeAgent(options: Partial<NixlAgentOptions> = {}): Promise<NixlAgent> {
    const agent = await NixlAgent.create({ name: "mx-test", plugins: { POSIX: {} }, library, ...options });
    open.push(agent);
    return agent;
  }

  function makeArena(): VmmArena {
    const arena = new VmmArena({ backend: hostBackend(), totalBytes: 64 * mib });
    open.push(arena);
    return arena;
  }

  it("knows where the library lies, its version and its plugins", async () => {
    const agent = await makeAgent();
    expect(agent.api.path).toBe(library);
    expect(agent.api.version).toBe("1.5.1");
    expect(agent.plugins).toEqual(["POSIX"]);
    expect(agent.availablePlugins).toEqual(expect.arrayContaining(["GDS", "GDS_MT", "POSIX", "UCX"]));
  });

  it("reads a file into registered memory, in pieces out of order", async () => {
    const content = pattern(3 * mib + 17);
    const file = await addon().openFile(fileOf(content));
    const arena = makeArena();
    const address = arena.malloc(content.length);
    const agent = await makeAgent();
    const memory = await agent.registerMemory(arena, pieces("DRAM", 0, [[address, content.length]]));
    const source = await agent.registerOpenFile(file, file.size);
    expect([memory.plugin, memory.byteLength, source.byteLength, source.file]).toEqual([
      "POSIX",
      content.length,
      content.length,
      file.name,
    ]);
    const cuts: [number, number][] = [
      [2 * mib, mib + 17],
      [0, 1],
      [1, mib],
      [mib + 1, mib - 1],
    ];
    const transfer = await agent.createTransfer({
      operation: "read",
      local: pieces(
        "DRAM",
        0,
        cuts.map(([at, length]) => [address + BigInt(at), length]),
      ),
      remote: pieces(
        "FILE",
        file.number,
        cuts.map(([at, length]) => [BigInt(at), length]),
      ),
      registrations: [memory, source],
    });
    await expect(memory.close()).rejects.toMatchObject({
      code: "ERR_NIXL_BUSY",
      plugin: "POSIX",
      file: file.name,
      offset: 0,
      length: content.length,
    });
    transfer.post();
    await transfer.wait({ timeoutMs: 20_000 });
    expect(transfer.progressBytes()).toBe(content.length);
    expect(Buffer.from(arena.view(address, content.length)).equals(content)).toBe(true);
    await transfer.release();
    await transfer.release();
    await source.close();
    await memory.close();
    await memory.close();
    file.close();
    arena.close();
  });

  it("pins the arena's memory while it is registered", async () => {
    const arena = makeArena();
    const address = arena.malloc(mib);
    const agent = await makeAgent();
    const memory = await agent.registerMemory(arena, pieces("DRAM", 0, [[address, mib]]));
    expect(() => arena.free(address)).toThrow(expect.objectContaining({ code: "ERR_ARENA_BUSY" }));
    expect(() => arena.close()).toThrow(expect.objectContaining({ code: "ERR_ARENA_BUSY" }));
    await memory.close();
    arena.free(address);
    arena.close();
  });

  it("gives everything back when the agent is closed with registrations and transfers open", async () => {
    const content = pattern(mib);
    const file = await addon().openFile(fileOf(content));
    const arena = makeArena();
    const address = arena.malloc(content.length);
    const agent = await makeAgent();
    const memory = await agent.registerMemory(arena, pieces("DRAM", 0, [[address, mib]]));
    const source = await agent.registerOpenFile(file, file.size);
    const number = file.number;
    file.close();
    const transfer = await agent.createTransfer({
      operation: "read",
      local: memory.pieces,
      remote: source.pieces,
      registrations: [memory, source],
    });
    transfer.post();
    await agent.close();
    await agent.close();
    await transfer.settled;
    const [outcome] = await Promise.allSettled([transfer.wait()]);
    if (outcome?.status === "rejected") expect(outcome.reason).toMatchObject({ code: "ERR_TRANSFER_ABORTED", file: source.file });
    await transfer.release();
    await memory.close();
    arena.close();
    expect(() => fstatSync(number)).toThrow(/EBADF/);
    // The thread answers before it ends.
    await vi.waitFor(() => expect(threadNames()).not.toContain("mx-nixl"));
    await expect(agent.exportMetadata()).rejects.toMatchObject({ code: "ERR_NIXL_CLOSED" });
  });

  it("reads from a duplicate of a descriptor that is closed at once", async () => {
    const content = pattern(5000);
    const fd = openSync(fileOf(content), "r");
    const file = addon().duplicateFile(fd);
    closeSync(fd);
    expect(file.size).toBe(5000);
    await file.requireUnchanged();
    truncateSync(file.name, 4999);
    await expect(file.requireUnchanged()).rejects.toThrow(/ERR_TRANSFER_FILE_CHANGED/);
    file.close();
    expect(() => addon().duplicateFile(99_999)).toThrow(/EBADF/);
  });

  it("registers files by path, descriptor and FileHandle, which may be closed at once", async () => {
    const content = pattern(5000);
    const path = fileOf(content);
    const arena = makeArena();
    const address = arena.malloc(3 * content.length);
    const agent = await makeAgent();
    const memory = await arena.register(agent);
    const handle = await fs.open(path);
    const fd = openSync(path, "r");
    const pending = [agent.registerFile(path), agent.registerFile(fd, 4000), agent.registerFile(handle)];
    closeSync(fd);
    await handle.close();
    const files = await Promise.all(pending);
    expect(files.map(({ file, byteLength }) => [file, byteLength])).toEqual([
      [path, 5000],
      [path, 4000],
      [path, 5000],
    ]);
    for (const [at, file] of files.entries()) {
      const into = address + BigInt(at * content.length);
      const transfer = await agent.createTransfer({
        operation: "read",
        local: pieces("DRAM", 0, [[into, file.byteLength]]),
        remote: pieces("FILE", file.pieces.device, [[0n, file.byteLength]]),
        registrations: [memory, file],
      });
      transfer.post();
      await transfer.wait({ timeoutMs: 20_000 });
      await transfer.release();
      expect(Buffer.from(arena.view(into, file.byteLength)).equals(content.subarray(0, file.byteLength))).toBe(true);
    }
    await expect(agent.registerFile(-1)).rejects.toMatchObject({ code: "ERR_OPTION_INVALID", option: "file" });
    await expect(agent.registerFile(path, -1)).rejects.toMatchObject({ code: "ERR_OPTION_INVALID", option: "bytes" });
    await expect(agent.registerFile("/nowhere/x")).rejects.toMatchObject({ code: "ERR_TRANSFER_OPEN" });
  });

  it("tells what a failing read was about, and then refuses further transfers until it is closed", async () => {
    const folder = await addon().openFile(temporaryFolder());
    const arena = makeArena();
    const address = arena.malloc(mib);
    const agent = await makeAgent();
    const memory = await agent.registerMemory(arena, pieces("DRAM", 0, [[address, mib]]));
    const source = await agent.registerOpenFile(folder, 2 * mib);
    const read = {
      operation: "read",
      local: memory.pieces,
      remote: pieces("FILE", folder.number, [[4096n, mib]]),
      registrations: [memory, source],
    } as const;
    const transfer = await agent.createTransfer(read);
    transfer.post();
    const error = await transfer.wait({ timeoutMs: 20_000 }).catch((thrown) => thrown);
    expect(error).toMatchObject({
      code: "ERR_NIXL_TRANSFER",
      plugin: "POSIX",
      file: folder.name,
      offset: 4096,
      length: mib,
      status: "NIXL_CAPI_ERROR_BACKEND",
    });
    expect(error.operation).toMatch(/^nixl_capi_(post_xfer_req|get_xfer_status)$/);
    await expect(agent.createTransfer(read)).rejects.toMatchObject({ code: "ERR_NIXL_BROKEN" });
    expect(() => arena.close()).toThrow(expect.objectContaining({ code: "ERR_ARENA_BUSY" }));
    await agent.close();
    await error.settled;
    arena.close();
  });

  it("rejects a wait whose signal is aborted, and settles", async () => {
    const content = pattern(8 * mib);
    const file = await addon().openFile(fileOf(content));
    const arena = makeArena();
    const address = arena.malloc(content.length);
    const agent = await makeAgent();
    const memory = await agent.registerMemory(arena, pieces("DRAM", 0, [[address, content.length]]));
    const source = await agent.registerOpenFile(file, file.size);
    const transfer = await agent.createTransfer({
      operation: "read",
      local: memory.pieces,
      remote: source.pieces,
      registrations: [memory, source],
    });
    const reason = new Error("enough");
    transfer.post();
    await expect(transfer.wait({ signal: AbortSignal.abort(reason) })).rejects.toMatchObject({ code: "ERR_ABORTED", cause: reason });
    await transfer.settled;
    await transfer.release();
    file.close();
  });

  it.each([
    [{ plugins: { NOSUCH: {} } }, "ERR_NIXL_PLUGIN"],
    [{ plugins: { POSIX: { use_uring: "maybe" } } }, "ERR_NIXL_PLUGIN"],
    [{ plugins: {} }, "ERR_OPTION_INVALID"],
    [{ name: "" }, "ERR_OPTION_INVALID"],
    [{ listenPort: 0 }, "ERR_OPTION_INVALID"],
    [{ library: "/nowhere/libnixl_capi.so" }, "ERR_NIXL_NOT_FOUND"],
  ])("refuses %o", async (options, code) => {
    await expect(makeAgent(options as Partial<NixlAgentOptions>)).rejects.toMatchObject({ code });
    await vi.waitFor(() => expect(threadNames()).not.toContain("mx-nixl"));
  });

  it("refuses a plugin it was not made with, foreign memory and metadata that is none", async () => {
    const agent = await makeAgent();
    const arena = makeArena();
    const address = arena.malloc(mib);
    const known = pieces("DRAM", 0, [[address, mib]]);
    await expect(agent.registerMemory(arena, known, "UCX")).rejects.toMatchObject({ code: "ERR_OPTION_UNKNOWN" });
    await expect(agent.registerMemory(arena, pieces("DRAM", 0, [[address, 4 * mib]]))).rejects.toMatchObject({ code: "ERR_ARENA_ADDRESS" });
    await expect(agent.loadRemote(Buffer.from("nonsense"))).rejects.toMatchObject({ code: "ERR_NIXL_METADATA" });
  });

  it("lets several agents of one name live side by side", async () => {
    const agents = await Promise.all([makeAgent(), makeAgent(), makeAgent()]);
    await Promise.all(agents.map((agent) => agent.close()));
  });
});
