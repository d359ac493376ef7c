/** Rings that modules make by what they use: `a > b > a`, one line each. */
export function ringsOf(
  modules: readonly string[],
  usesOf: (module: string) => readonly string[],
  nameOf: (module: string) => string,
): string[] {
  const state = new Map<string, "open" | "done">();
  const rings: string[] = [];
  const visit = (module: string, path: readonly string[]): void => {
    if (state.get(module) === "done") return;
    if (state.get(module) === "open") {
      rings.push([...path.slice(path.indexOf(module)), module].map(nameOf).join(" > "));
      return;
    }
    state.set(module, "open");
    for (const used of usesOf(module)) visit(used, [...path, module]);
    state.set(module, "done");
  };
  for (const module of modules) visit(module, []);
  return rings;
}
