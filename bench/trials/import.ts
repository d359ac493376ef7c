/**
 * The first import of the package, as it is packed, in a process that has imported nothing else.
 */
const start = performance.now();
await import("modelexpress-client");
const seconds = (performance.now() - start) / 1000;

const { printFigures } = await import("./job.js");
printFigures({ seconds, bytes: 0 });
