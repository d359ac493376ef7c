import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { createServer, request } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { describe, expect, it } from "vitest";
import { VmmArena } from "../../src/arena/arena.js";
import { hostBackend } from "../../src/arena/host-backend.js";
import { loadCheckpoint } from "../../src/loader/load-checkpoint.js";
import { streamCheckpoint } from "../../src/loader/stream-checkpoint.js";
import { deferred } from "../../src/transfer/deferred.js";
import { temporaryFolder } from "../support/folders.js";
import { errorFrom, failureOf, writeCheckpoint } from "../support/loading.js";
import { pattern } from "../support/safetensors.js";

const MIB = 2 ** 20;
const large = { large: { dtype: "U8", shape: [24 * MIB] } } as const;

describe("tensor.use()", () => {
  it("lets a file be written out of the memory itself, though the model is closed at once", async () => {
    const model = await loadCheckpoint(writeCheckpoint(large));
    const file = join(temporaryFolder(), "copy");
    const writing = model.requireTensor("large").use((bytes) => writeFile(file, bytes));
    await model.close();
    await writing;
    expect(readFileSync(file).equals(pattern("large", 24 * MIB))).toBe(true);
    expect(model.arena.closed).toBe(true);
  });

  it("lets a response be sent out of the memory itself, to a reader who begins late", async () => {
    const model = await loadCheckpoint(writeCheckpoint(large));
    const taken = deferred<void>();
    const server = createServer((_, response) => {
      const tensor = model.requireTensor("large");
      tensor.use((bytes) => new Promise<void>((resolve) => response.on("close", resolve).end(bytes)));
      taken.resolve();
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    try {
      const { port } = server.address() as AddressInfo;
      const received = new Promise<Buffer>((resolve, reject) => {
        request({ host: "127.0.0.1", port }, (response) => {
          // Sockets hold a few megabytes: most of the body still has to leave the memory when the
          // model is told to close.
          const closing = model.close();
          resolve(Promise.all([buffer(response), closing]).then(([body]) => body));
        })
          .on("error", reject)
          .end();
      });
      await taken.promise;
      expect((await received).equals(pattern("large", 24 * MIB))).toBe(true);
      expect(model.arena.closed).toBe(true);
    } finally {
      server.closeAllConnections();
      server.close();
    }
  });

  it("gives what the function gives, throws what it throws, and then the memory goes", async () => {
    const model = await loadCheckpoint(writeCheckpoint({ t: { dtype: "U8", shape: [2] }, empty: { dtype: "U8", shape: [0] } }));
    const tensor = model.requireTensor("t");
    expect(await tensor.use((bytes) => bytes.length)).toBe(2);
    expect(await tensor.use(async (bytes) => bytes.length)).toBe(2);
    expect(await model.requireTensor("empty").use((bytes) => bytes.length)).toBe(0);
    const mine = new Error("mine");
    const thrown = () => {
      throw mine;
    };
    expect(await failureOf(tensor.use(thrown))).toBe(mine);
    expect(await failureOf(tensor.use(() => Promise.reject(mine)))).toBe(mine);
    expect(await errorFrom(tensor.use("work" as never))).toMatchObject({ code: "ERR_OPTION_INVALID" });
    await model.close();
    expect(model.arena.closed).toBe(true);
    expect(await errorFrom(tensor.use(() => 1))).toMatchObject({ code: "ERR_TENSOR_RELEASED", tensor: "t" });
  });
});

describe("model.borrow()", () => {
  it("holds the memory of views until it is released, and close() with it", async () => {
    const model = await loadCheckpoint(writeCheckpoint({ t: { dtype: "U8", shape: [2], bytes: Buffer.from([1, 2]) } }));
    const view = model.requireTensor("t").bytes();
    const borrow = model.borrow();
    const closing = model.close();
    expect([model.closed, borrow.released, [...view]]).toEqual([true, false, [1, 2]]);
    expect(await errorFrom(() => model.borrow())).toMatchObject({ code: "ERR_TENSOR_RELEASED" });
    expect(await errorFrom(() => model.requireTensor("t").bytes())).toMatchObject({ code: "ERR_TENSOR_RELEASED" });
    borrow.release();
    borrow.release();
    await closing;
    expect([borrow.released, view.length, model.arena.closed]).toEqual([true, 0, true]);
  });

  it("ends with its scope", async () => {
    await using model = await loadCheckpoint(writeCheckpoint({ t: { dtype: "U8", shape: [2] } }));
    let kept: { readonly released: boolean } | undefined;
    {
      await using borrow = await model.borrow();
      kept = borrow;
      expect(kept.released).toBe(false);
    }
    expect(kept.released).toBe(true);
  });

  it("that outlasts closeTimeoutMs makes close() fail with everything in place; it can be closed later", async () => {
    const model = await loadCheckpoint(writeCheckpoint({ t: { dtype: "U8", shape: [2], bytes: Buffer.from([1, 2]) } }), {
      closeTimeoutMs: 1,
    });
    const view = model.requireTensor("t").bytes();
    const borrow = model.borrow();
    expect(await errorFrom(model.close())).toMatchObject({ code: "ERR_TRANSFER_STUCK" });
    expect([...view]).toEqual([1, 2]);
    borrow.release();
    await model.close();
    expect([view.length, model.arena.closed]).toEqual([0, true]);
  });

  it("keeps a caller's arena from being closed or freed under it, as use() does", async () => {
    using arena = new VmmArena({ backend: hostBackend(), totalBytes: 16 * MIB });
    const model = await loadCheckpoint(writeCheckpoint({ t: { dtype: "U8", shape: [2], bytes: Buffer.from([1, 2]) } }), { arena });
    const end = deferred<void>();
    const used = model.requireTensor("t").use(() => end.promise);
    const borrow = model.borrow();
    for (const release of [() => borrow.release(), () => end.resolve()]) {
      expect(await errorFrom(() => arena.close())).toMatchObject({ code: "ERR_ARENA_BUSY" });
      expect(await errorFrom(() => arena.free(arena.base))).toMatchObject({ code: "ERR_ARENA_BUSY" });
      release();
    }
    await used;
    arena.close();
    expect(arena.closed).toBe(true);
  });

  it("of a model without bytes is possible", async () => {
    await using model = await loadCheckpoint(writeCheckpoint({}));
    using borrow = model.borrow();
    expect(borrow.released).toBe(false);
  });
});

describe("a bounded stream", () => {
  const tensors = Object.fromEntries(Array.from({ length: 4 }, (_, at) => [`t${at}`, { dtype: "U8", shape: [1000] } as const]));

  it("goes on once what was borrowed is given back", async () => {
    const seen: boolean[] = [];
    for await (const tensor of streamCheckpoint(writeCheckpoint(tensors), { maxBytes: 2000 })) {
      const view = tensor.bytes();
      // Not awaited: the next step of the loop does that.
      tensor.use(async (bytes) => {
        await new Promise(setImmediate);
        seen.push(bytes.length === 1000 && pattern(tensor.name, 1000).equals(view));
      });
    }
    expect(seen).toEqual([true, true, true, true]);
  });

  it("that is left waits for a borrow no longer than closeTimeoutMs", async () => {
    const end = deferred<void>();
    using arena = new VmmArena({ backend: hostBackend(), totalBytes: 16 * MIB });
    let used: Promise<void> | undefined;
    const leaving = (async () => {
      for await (const tensor of streamCheckpoint(writeCheckpoint(tensors), { maxBytes: 2000, arena, closeTimeoutMs: 1 })) {
        used = tensor.use(() => end.promise);
        return;
      }
    })();
    expect(await errorFrom(leaving)).toMatchObject({ code: "ERR_TRANSFER_STUCK" });
    expect(arena.liveAllocationCount).toBe(1);
    end.resolve();
    await used;
    await new Promise(setImmediate);
    expect(arena.liveAllocationCount).toBe(0);
  });
});
