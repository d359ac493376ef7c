import { SingleBar } from "cli-progress";
import { formatBytes, formatDuration, formatRate } from "../units.js";
import type { Output } from "./output.js";
import { Rate } from "./rate.js";

export interface Progress {
  update(progress: { readonly bytes: number; readonly totalBytes: number }): void;
  /** Takes the bar away; to be called also after a failure. */
  stop(): void;
}

/** A bar on stderr when that is a terminal, else nothing. */
export function progressBar(output: Output, verb: string): Progress {
  if (output.stderr.isTTY !== true) return { update() {}, stop() {} };
  const rate = new Rate();
  const shown = { bytes: 0, totalBytes: 0 };
  const bar = new SingleBar({
    stream: output.stderr as NodeJS.WriteStream,
    format: (_, { maxWidth }) => progressLine(verb, { ...shown, bytesPerSecond: rate.bytesPerSecond }, maxWidth),
    hideCursor: true,
    clearOnComplete: true,
  });
  let started = false;
  return {
    update({ bytes, totalBytes }) {
      Object.assign(shown, { bytes, totalBytes });
      rate.add(bytes, performance.now());
      if (!started) bar.start(totalBytes, bytes);
      started = true;
      bar.update(bytes);
    },
    stop() {
      if (started) bar.stop();
    },
  };
}

interface Shown {
  readonly bytes: number;
  readonly totalBytes: number;
  readonly bytesPerSecond: number | undefined;
}

const maxBar = 40;
const minBar = 10;
/**
 * Columns of everything behind the bar, at its longest: the bar keeps its length while numbers
 * grow.
 */
const restColumns = 55;

/** The line of a progress, in less than so many columns: what matters least goes first. */
export function progressLine(verb: string, { bytes, totalBytes, bytesPerSecond }: Shown, columns: number): string {
  const part = totalBytes === 0 ? 1 : Math.min(1, bytes / totalBytes);
  const percentage = `${Math.floor(part * 100)}%`;
  const amount = `${formatBytes(bytes)} of ${formatBytes(totalBytes)}`;
  const rate = bytesPerSecond === undefined ? [] : [formatRate(bytesPerSecond)];
  const left = bytesPerSecond === undefined ? [] : [`${timeLeft((totalBytes - bytes) / bytesPerSecond)} left`];
  const barColumns = Math.min(maxBar, columns - verb.length - restColumns);
  const bar = barColumns < minBar ? [] : [`${"=".repeat(Math.round(part * barColumns)).padEnd(barColumns, "-")} ${percentage}`];
  const lines = [
    ...bar.map((shown) => [`${verb} ${shown}`, amount, ...rate, ...left]),
    [`${verb} ${percentage}`, amount, ...rate, ...left],
    [`${verb} ${percentage}`, ...rate, ...left],
    [`${verb} ${percentage}`, ...left],
    [`${verb} ${percentage}`],
  ].map((parts) => parts.join("  "));
  return lines.find((line) => line.length < columns) ?? percentage.slice(0, Math.max(0, columns - 1));
}

/** In whole seconds, rounded up; a time that nobody waits for is not told to the second. */
function timeLeft(seconds: number): string {
  if (seconds < 6000) return formatDuration(Math.ceil(seconds) * 1000);
  const hours = seconds / 3600;
  return hours < 100 ? `${Math.ceil(hours)} h` : "days";
}
