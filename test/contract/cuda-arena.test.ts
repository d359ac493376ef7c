import { rmSync } from "node:fs";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { cudaBackend, cudaFacts } from "../../src/arena/cuda-backend.js";
import type { VmmBackend } from "../../src/arena/vmm-backend.js";
import { standInCuda } from "../support/cuda.js";
import { readLedger } from "../support/fakes.js";
import { makeFolder } from "../support/folders.js";
import { arenaContract } from "./arena.contract.js";

const folder = makeFolder();
const ledger = join(folder, "ledger");
const library = standInCuda({ ledger });

/** As a user may wrap it: the arena has to go through its methods. */
function wrapped(): VmmBackend {
  const inner = cudaBackend({ device: 0, library });
  return {
    memory: "device",
    device: "cuda:0",
    allocationGranularity: () => inner.allocationGranularity(),
    reserve: (totalBytes) => inner.reserve(totalBytes),
    allocate: (va, bytes) => inner.allocate(va, bytes),
    deallocate: (va, bytes, handle) => inner.deallocate(va, bytes, handle),
    releaseReserve: (base, totalBytes) => inner.releaseReserve(base, totalBytes),
  };
}

afterAll(() => rmSync(folder, { recursive: true, force: true }));

it("the stand-in is what was loaded", async () => {
  expect((await cudaFacts({ library })).library).toBe(library);
});

arenaContract("the CUDA backend", () => cudaBackend({ device: 0, library }));
arenaContract("the CUDA backend behind another", wrapped);

describe("afterwards", () => {
  it("nothing is left of any arena; the context is held by backends still reachable", () => {
    const { open, peak } = readLedger(ledger);
    expect([...new Set(open.map(({ kind }) => kind))]).toEqual(["context"]);
    expect(peak.mapping?.things).toBe(300);
  });
});
