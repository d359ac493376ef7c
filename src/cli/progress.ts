import { SingleBar } from "cli-progress";
import { formatBytes } from "../units.js";
import type { Output } from "./output.js";

export interface Progress {
  update(progress: { readonly bytes: number; readonly totalBytes: number }): void;
  /** Takes the bar away; to be called also after a failure. */
  stop(): void;
}

/** A bar on stderr when that is a terminal, else nothing. */
export function progressBar(output: Output, verb: string): Progress {
  if (output.stderr.isTTY !== true) return { update() {}, stop() {} };
  const bar = new SingleBar({
    stream: output.stderr as NodeJS.WriteStream,
    format: `${verb} {bar} {percentage}%  {done} of {all}`,
    barCompleteChar: "=",
    barIncompleteChar: "-",
    hideCursor: true,
    clearOnComplete: true,
  });
  let started = false;
  return {
    update({ bytes, totalBytes }) {
      const shown = { done: formatBytes(bytes), all: formatBytes(totalBytes) };
      if (!started) bar.start(totalBytes, bytes, shown);
      started = true;
      bar.update(bytes, shown);
    },
    stop() {
      if (started) bar.stop();
    },
  };
}
