// mx_malloc and mx_free from threads of C.
import { programPath } from "../programs.mjs";
import { product, Skip } from "../support.mjs";

export default async function callers({ device, number, folder, answer, open }) {
  const { cudaBackend, nativeLibraryPath, setActiveArena, VmmArena } = await product();
  const c = { exports: {} };
  try {
    process.dlopen(c, programPath("c-caller.node", folder));
  } catch (error) {
    throw new Skip(error.message);
  }
  // The arena first: it loads the library that the program then finds in the process.
  const arena = open(new VmmArena({ backend: cudaBackend({ device }) }));
  c.exports.open(nativeLibraryPath);
  setActiveArena(arena);
  try {
    for (const threads of [1, 4]) {
      const [given, refused, ns] = c.exports.pairs(threads, 2 ** 20, Number(number), 100);
      answer("pairs", { threads, given, refused, microseconds: ns / given / 1000 });
      if (refused > 0 || given !== threads * 100) throw new Error(`${given} allocations given, ${refused} refused`);
    }
  } finally {
    setActiveArena(null);
  }
}
