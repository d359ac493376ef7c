import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { expect, it } from "vitest";
import { platformName } from "../../src/native/addon-path.js";
import { root } from "../support/folders.js";

const [listing] = JSON.parse(
  execFileSync("npm", ["pack", "--dry-run", "--json", "--ignore-scripts"], {
    cwd: root,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "ignore"],
  }),
) as [{ files: { path: string }[] }];
const packed = listing.files.map(({ path }) => path);

it("every link of a packed document leads to a packed file", () => {
  const dead = packed
    .filter((file) => file.endsWith(".md"))
    .flatMap((file) =>
      [...readFileSync(join(root, file), "utf8").matchAll(/\]\(([^)\s]+)\)/g)]
        .map(([, link = ""]) => link.replace(/#.*$/, ""))
        .filter((link) => link !== "" && !/^https?:/.test(link) && !packed.includes(normalize(join(dirname(file), link))))
        .map((link) => `${file}: ${link}`),
    );
  expect(dead).toEqual([]);
});

it("the package holds its code, types, documents and addon, and no modules by themselves", () => {
  const kinds = new Set(packed.map((file) => file.replace(/chunk-[A-Z0-9]{8}/, "chunk").replace(/^lib\/types\/.+\.d\.ts$/, "lib/types")));
  expect([...kinds].filter((kind) => !kind.startsWith("docs/")).sort()).toEqual([
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "README.md",
    "lib/chunk.js",
    "lib/gds-main.js",
    "lib/index.js",
    `lib/modelexpress.${platformName()}.node`,
    "lib/mx.js",
    "lib/types",
    "package.json",
  ]);
});
