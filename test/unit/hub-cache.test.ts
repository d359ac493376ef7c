import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { runInNewContext } from "node:vm";
import { describe, expect, it, vi } from "vitest";
import { hubCacheFolder, parseRepositoryId } from "../../src/checkpoint/hub-cache.js";
import { openCheckpoint } from "../../src/checkpoint/open.js";
import { loadCheckpoint } from "../../src/loader/load-checkpoint.js";
import { temporaryFolder } from "../support/folders.js";
import { errorFrom, writeCheckpoint } from "../support/loading.js";
import { buildSafetensors } from "../support/safetensors.js";

const [first, second] = ["a".repeat(40), `${"b".repeat(39)}1`] as const;

interface Repository {
  readonly refs?: Readonly<Record<string, string>>;
  /** Commits; each has one tensor, of the commit's name. */
  readonly snapshots?: readonly string[];
}

/** A cache as the Hub's tools write it, set as the one to look in. */
function cacheOf(repositories: Readonly<Record<string, Repository>>): string {
  const cache = temporaryFolder();
  for (const [name, { refs = {}, snapshots = [] }] of Object.entries(repositories)) {
    const folder = join(cache, name);
    for (const part of ["blobs", "refs", "snapshots"]) mkdirSync(join(folder, part), { recursive: true });
    for (const [ref, commit] of Object.entries(refs)) {
      mkdirSync(dirname(join(folder, "refs", ref)), { recursive: true });
      writeFileSync(join(folder, "refs", ref), commit);
    }
    for (const commit of snapshots) {
      mkdirSync(join(folder, "snapshots", commit));
      writeFileSync(join(folder, "blobs", commit), buildSafetensors({ [commit]: { dtype: "U8", shape: [1] } }));
      symlinkSync(`../../blobs/${commit}`, join(folder, "snapshots", commit, "model.safetensors"));
    }
  }
  vi.stubEnv("HF_HUB_CACHE", cache);
  return cache;
}

const both: Repository = { refs: { main: second, "v1.0": first, "refs/pr/2": first }, snapshots: [first, second] };

/** Commit whose snapshot is opened. */
async function opened(given: string | URL): Promise<string | undefined> {
  const { tensors } = await openCheckpoint(given);
  return [...tensors.keys()][0];
}

describe("a repository's folder in the Hub's cache", () => {
  it("stands for the snapshot of main", async () => {
    const folder = join(cacheOf({ "models--org--name": both }), "models--org--name");
    expect(await opened(folder)).toBe(second);
    expect(await opened(`${folder}/`)).toBe(second);
    expect(await opened(pathToFileURL(folder))).toBe(second);
    expect((await openCheckpoint(folder)).path).toBe(join(folder, "snapshots", second));
    expect(await opened(join(folder, "snapshots", first))).toBe(first);
  });

  it("may be reached by a link of another name", async () => {
    const cache = cacheOf({ "models--org--name": both });
    symlinkSync(join(cache, "models--org--name"), join(cache, "llama"));
    expect(await opened(join(cache, "llama"))).toBe(second);
  });

  it("without refs stands for its only snapshot, and for none of several", async () => {
    const cache = cacheOf({ "models--a--one": { snapshots: [first] }, "datasets--a--two": { snapshots: [first, second] } });
    expect(await opened(join(cache, "models--a--one"))).toBe(first);
    const error = await errorFrom(openCheckpoint(join(cache, "datasets--a--two")));
    expect(error).toMatchObject({ code: "ERR_CHECKPOINT_AMBIGUOUS", repository: "a/two", choices: [first, second] });
  });
});

describe("a repository whose refs/main is damaged", () => {
  const damages: [string, (file: string) => void, object][] = [
    [
      "is empty",
      (file) => writeFileSync(file, "\n"),
      { code: "ERR_CHECKPOINT_NOT_FOUND", message: /this file should hold the commit of main, and it is empty/ },
    ],
    [
      "holds something else",
      (file) => writeFileSync(file, "<html>"),
      { code: "ERR_CHECKPOINT_NOT_FOUND", message: /and it holds "<html>"/ },
    ],
    ["is a folder", (file) => mkdirSync(file), { code: "ERR_CHECKPOINT_IO", errno: "EISDIR", message: /the commit of main is not known/ }],
    ["is a link to nothing", (file) => symlinkSync("gone", file), { code: "ERR_CHECKPOINT_NOT_FOUND", errno: "ENOENT" }],
  ];
  it.each(damages)(
    "by one that %s stands for no other snapshot, and says why",
    async (_, damage, { message = /./, ...facts }: { message?: RegExp }) => {
      const cache = cacheOf({ "models--org--name": { snapshots: [first] } });
      const file = join(cache, "models--org--name/refs/main");
      damage(file);
      for (const given of ["org/name", "org/name@main", join(cache, "models--org--name")]) {
        const error = await errorFrom(openCheckpoint(given));
        expect(error).toMatchObject({ ...facts, file });
        expect(error.message).toMatch(message);
        expect(error.message).toContain(`give the path of a snapshot below ${cache}/models--org--name/snapshots`);
      }
      expect(await opened(`org/name@${first}`)).toBe(first);
    },
  );

  it("because refs is a file, too", async () => {
    const folder = temporaryFolder();
    mkdirSync(join(folder, "snapshots", first), { recursive: true });
    mkdirSync(join(folder, "blobs"));
    writeFileSync(join(folder, "refs"), "");
    expect(await errorFrom(openCheckpoint(folder))).toMatchObject({ code: "ERR_CHECKPOINT_NOT_FOUND", errno: "ENOTDIR" });
  });
});

describe("the id of a repository", () => {
  it.each([
    ["org/name", second],
    ["org/name@main", second],
    ["org/name@v1.0", first],
    ["org/name@refs/pr/2", first],
    [`org/name@${first}`, first],
    ["org/name@bbbbbbb", second],
    ["org/name@AAAAAAAA", first],
    ["gpt2", first],
    ["gpt2@main", first],
  ])("%s is looked up in the local cache", async (id, commit) => {
    cacheOf({ "models--org--name": both, "models--gpt2": { refs: { main: `${first}\n` }, snapshots: [first] } });
    expect(await opened(id)).toBe(commit);
  });

  it("can be loaded by", async () => {
    cacheOf({ "models--org--name": both });
    await using model = await loadCheckpoint("org/name@v1.0");
    expect([...model.tensors.keys()]).toEqual([first]);
  });

  it("gives way to a local path of that name", async () => {
    cacheOf({ "models--org--name": both });
    const local = temporaryFolder();
    mkdirSync(join(local, "org/name"), { recursive: true });
    writeFileSync(join(local, "org/name/model.safetensors"), buildSafetensors({ local: { dtype: "U8", shape: [1] } }));
    vi.spyOn(process, "cwd").mockReturnValue(local);
    expect(await opened("org/name")).toBe("local");
    expect(await opened("org/name@v1.0")).toBe(first);
  });

  it("that the cache does not have is an error that says where was looked, and what to do", async () => {
    const cache = cacheOf({});
    const error = await errorFrom(openCheckpoint("org/name@v2"));
    expect(error).toMatchObject({ code: "ERR_CHECKPOINT_NOT_FOUND", repository: "org/name", revision: "v2", cache });
    expect(error.message).toBe(
      `${join(process.cwd(), "org/name@v2")}: no such file or folder, nor is org/name in the Hub's cache ${cache} (set by HF_HUB_CACHE or HF_HOME): ` +
        "download it with `hf download org/name --revision v2`",
    );
    expect((await errorFrom(openCheckpoint("nowhere"))).message).toMatch(/nowhere: no such file or folder \(ENOENT\)$/);
  });

  it("whose revision the cache does not have is an error that says what there is", async () => {
    const cache = cacheOf({ "models--org--name": both, "models--org--cut": { refs: { main: first }, snapshots: [second] } });
    for (const revision of ["v2", "aaa", "../../x", "refs/pr", "."]) {
      const { code, message } = await errorFrom(openCheckpoint(`org/name@${revision}`));
      expect([code, message]).toEqual([
        "ERR_CHECKPOINT_NOT_FOUND",
        `${cache}/models--org--name: this repository has no revision "${revision}" in the cache; there are snapshots of ${first}, ${second}; ` +
          `download it with \`hf download org/name --revision ${revision}\``,
      ]);
    }
    expect((await errorFrom(openCheckpoint("org/cut"))).message).toBe(
      `${cache}/models--org--cut: main is commit ${first}, of which nothing is in the cache; there are snapshots of ${second}; download it with \`hf download org/cut\``,
    );
  });

  it("whose download has just begun is told as that", async () => {
    const cache = cacheOf({ "models--org--name": { refs: { main: first } } });
    writeFileSync(join(cache, "models--org--name/blobs/ab.incomplete"), "");
    expect(await errorFrom(openCheckpoint("org/name"))).toMatchObject({
      code: "ERR_CHECKPOINT_DOWNLOAD_UNFINISHED",
      leftover: join(cache, "models--org--name/blobs/ab.incomplete"),
    });
  });
});

it("the cache's folder is found as the Hub's tools find it", () => {
  const HOME = "/home/me";
  const rows: [NodeJS.ProcessEnv, string][] = [
    [{}, "/home/me/.cache/huggingface/hub"],
    [{ XDG_CACHE_HOME: "/var/cache" }, "/var/cache/huggingface/hub"],
    [{ XDG_CACHE_HOME: "/var/cache", HF_HOME: "~/hf" }, "/home/me/hf/hub"],
    [{ HF_HOME: "/hf", HUGGINGFACE_HUB_CACHE: "/old" }, "/old"],
    [
      { HF_HOME: "/hf", HUGGINGFACE_HUB_CACHE: "/old", HF_HUB_CACHE: "$SCRATCH/$" + "{USER}/hub", SCRATCH: "/scratch", USER: "me" },
      "/scratch/me/hub",
    ],
    [{ HF_HUB_CACHE: "", HF_HOME: "/hf" }, "/hf/hub"],
    [{ HF_HUB_CACHE: "/a/$UNSET" }, "/a/$UNSET"],
  ];
  for (const [environment, folder] of rows) expect(hubCacheFolder({ HOME, ...environment })).toBe(folder);
});

it.each(["/org/name", "./org/name", "../name", "org/name/more", "org/", "", "~/name", "org//name", "file:///x", ".hidden/x", "org/name@"])(
  "%j is the id of no repository",
  (text) => {
    expect(parseRepositoryId(text)).toBeUndefined();
  },
);

it("a URL of another realm is a URL", async () => {
  const { href, protocol } = pathToFileURL(writeCheckpoint({ t: { dtype: "U8", shape: [1] } }));
  const foreign: URL = runInNewContext("({ href, protocol })", { href, protocol });
  expect(await opened(foreign)).toBe("t");
  const remote: URL = runInNewContext('({ href: "https://x/y", protocol: "https:" })');
  expect(await errorFrom(openCheckpoint(remote))).toMatchObject({ code: "ERR_CHECKPOINT_URL_UNSUPPORTED", url: "https://x/y" });
});
