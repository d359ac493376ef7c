/**
 * Ends the process once what was written has left it. Without an explicit exit, a read that hangs
 * on broken storage could hold the process; with an exit at once, a pipe would miss the end of the
 * output.
 */
export async function finish(exitCode: number): Promise<never> {
  await Promise.all([process.stdout, process.stderr].map((stream) => new Promise<void>((resolve) => stream.write("", () => resolve()))));
  process.exit(exitCode);
}
