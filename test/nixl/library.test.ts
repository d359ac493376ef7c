import { mkdirSync, readdirSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, it, vi } from "vitest";
import { addon } from "../../src/native/load.js";
import { readText } from "../../src/probe/read-text.js";
import { isGdsAvailable, whyGdsUnavailable } from "../../src/transfer/gds/available.js";
import { loadNixl } from "../../src/transfer/nixl/api.js";
import { libraryVersion, pythonPlaces, usualPlaces } from "../../src/transfer/nixl/library-paths.js";
import { compile } from "../support/compile.js";
import { collectEvents } from "../support/events.js";
import { fakesEnv } from "../support/fakes.js";
import { temporaryFolder } from "../support/folders.js";
import { errorFrom } from "../support/loading.js";
import { describeNixl } from "../support/nixl.js";
import { runNode } from "../support/run-node.js";

/** A `python3` on PATH that prints this, or fails. */
function python(output: string, code = 0): void {
  const folder = temporaryFolder();
  writeFileSync(join(folder, "python3"), `#!/bin/sh\nprintf '%s' '${output}'\nexit ${code}\n`, { mode: 0o755 });
  vi.stubEnv("PATH", `${folder}:/usr/bin:/bin`);
}

it("looks on the loader's path first, then in NVIDIA's places", () => {
  const places = usualPlaces();
  expect(places[0]).toEqual({ path: "libnixl_capi.so", from: "the loader's path" });
  expect(places.map(({ path }) => path)).toContain("/opt/nvidia/nvda_nixl/lib/x86_64-linux-gnu/libnixl_capi.so");
});

it("finds the wheels in the site-packages of python3, or says what was wrong with it", async () => {
  const site = join(temporaryFolder(), "site-packages");
  for (const name of [".nixl_cu13.mesonpy.libs", ".nixl_cu12.mesonpy.libs", "nixl_cu12.libs"])
    mkdirSync(join(site, name), { recursive: true });
  python(JSON.stringify([site, "/nowhere", site]));
  expect(await pythonPlaces()).toEqual(
    ["12", "13"].map((cuda) => ({
      path: join(site, `.nixl_cu${cuda}.mesonpy.libs`, "libnixl_capi.so"),
      from: "the site-packages of python3",
    })),
  );
  python("[]");
  expect(await pythonPlaces()).toMatchObject({ from: "the site-packages of python3", why: expect.stringMatching(/^no NIXL in/) });
  python("no JSON");
  expect(await pythonPlaces()).toMatchObject({ why: expect.stringMatching(/^python3 cannot be asked/) });
  python("", 1);
  expect(await pythonPlaces()).toMatchObject({ why: expect.stringMatching(/^python3 cannot be asked: Command failed/) });
});

it("tells all places when there is no NIXL anywhere", async () => {
  python("[]");
  vi.stubEnv("MX_NIXL_LIBRARY", "");
  const error = await loadNixl().catch((thrown) => thrown);
  expect(error).toMatchObject({ code: "ERR_NIXL_NOT_FOUND" });
  expect(error.tried.length).toBe(usualPlaces().length + 1);
  expect(error.tried.every(({ why }: { why: string }) => why !== "")).toBe(true);
  // One line that can be read: a dozen places where nothing lies are one reason.
  expect(error.message).toMatch(
    /^NIXL is not available \(`pip install nixl-cu12` .*\): no libnixl_capi\.so on the loader's path or in NVIDIA's usual places; no NIXL in .+$/,
  );
});

it("says what a library that is not NIXL lacks, and what is its stub", async () => {
  await expect(addon().loadNixl("libc.so.6", [])).rejects.toThrow(/ERR_NIXL_SYMBOLS.*nixl_capi_create_xfer_req/);
  const empty = compile("io-faults.c", ["-shared", "-fPIC", "-ldl"]);
  await expect(loadNixl({ library: empty })).rejects.toThrow(/lacks \d+ of the functions needed: nixl_capi_create_configured_agent/);
});

it.each([
  [
    "a file of another kind",
    "/etc/passwd",
    "ERR_NIXL_LOAD",
    /^the library that the option library names .*: \/etc\/passwd: invalid ELF header$/,
  ],
  ["a folder", "/etc", "ERR_NIXL_LOAD", /^the library that the option library names .*: \/etc: cannot read file data: Is a directory$/],
  ["another library", "libm.so.6", "ERR_NIXL_SYMBOLS", /: libm\.so\.6 lacks \d+ of the functions needed: (nixl_capi_\w+, ){3}\.\.\.$/],
] as const)("says of %s that was named what is wrong with it", async (_kind, library, code, message) => {
  const error = await errorFrom(loadNixl({ library }));
  expect(error).toMatchObject({ code, message: expect.stringMatching(message), tried: [{ path: library, from: "the option library" }] });
});

it("tells why there is no GDS as an event", async () => {
  const library = "/nowhere/libnixl_capi.so";
  const events = collectEvents();
  expect(await isGdsAvailable({ library })).toBe(false);
  const why = await whyGdsUnavailable({ library }, readText);
  expect(events.find(({ event }) => event === "gds.unavailable")?.why).toBe(why);
  expect(why).toEqual(expect.any(String));
});

describeNixl("with the real NIXL", (library) => {
  it("finds it through python3, with the version of its package", async () => {
    vi.stubEnv("MX_NIXL_LIBRARY", "");
    const site = join(temporaryFolder(), "site-packages");
    mkdirSync(site);
    const from = dirname(dirname(library));
    for (const name of [".nixl_cu12.mesonpy.libs", "nixl_cu12.libs", "nixl_cu12-1.5.1.dist-info"])
      symlinkSync(join(from, name), join(site, name));
    python(JSON.stringify([site]));
    const api = await loadNixl();
    expect(api.path.endsWith(".nixl_cu12.mesonpy.libs/libnixl_capi.so")).toBe(true);
    expect(api.version).toBe("1.5.1");
    expect(api.tried.length).toBe(usualPlaces().length);
    expect(libraryVersion(library)).toBe("1.5.1");
    expect(libraryVersion("/nowhere/lib/libnixl_capi.so")).toBeUndefined();
  });

  it("is GDS where only libcufile.so.0 is installed, as the stand-ins are, and is none without NIXL", async () => {
    const script = `
      import fs from "node:fs";
      import { syncBuiltinESMExports } from "node:module";
      import { subscribe } from "node:diagnostics_channel";
      const readFileSync = fs.readFileSync;
      fs.readFileSync = (file, ...rest) => (file === "/proc/modules" ? "nvidia_fs 262144 0 - Live 0x0\\n" : readFileSync(file, ...rest));
      syncBuiltinESMExports();
      const { isGdsAvailable } = await import("modelexpress-client");
      let why;
      subscribe("modelexpress", (message) => (why = message.why ?? why));
      const answers = [await isGdsAvailable(), await isGdsAvailable({ library: "/nowhere/libnixl_capi.so" })];
      console.log(JSON.stringify([...answers, why]));`;
    const fakes = fakesEnv({ ledger: join(temporaryFolder(), "ledger"), nixl: library });
    const env = { ...fakes, NIXL_LOG_LEVEL: "FATAL" };
    expect(readdirSync(String(fakes.LD_LIBRARY_PATH)).filter((name) => name.startsWith("libcufile"))).toEqual(["libcufile.so.0"]);
    const { stdout, stderr } = await runNode(script, { env });
    expect(JSON.parse(stdout), stderr).toEqual([true, false, expect.stringContaining("NIXL is not available")]);
  });

  it("needs the module nvidia_fs at the start of a line, and cuFile", async () => {
    expect(await whyGdsUnavailable({ library }, () => undefined)).toMatch(/nvidia_fs is not loaded/);
    expect(await whyGdsUnavailable({ library }, () => "nvme 1 2\nmy_nvidia_fs 3\n")).toMatch(/nvidia_fs is not loaded/);
    expect(await whyGdsUnavailable({ library }, () => "nvme 1 2\nnvidia_fs 3 4\n")).toMatch(
      /cuFile cannot be loaded: libcufile\.so: .*; libcufile\.so\.0: /,
    );
  });
});
