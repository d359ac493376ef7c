import { existsSync, readFileSync } from "node:fs";
import { compile } from "./compile.js";

export interface FaultPlan {
  /** A read returns at most this many bytes. */
  readonly shortBytes?: number;
  /** Every so many reads one fails with EINTR. */
  readonly eintrEvery?: number;
  /** A read over this file offset fails with `failErrno` (default EIO). */
  readonly failOffset?: number;
  readonly failErrno?: "EIO" | "ESTALE" | "EAGAIN";
  /** Every read waits so long first. */
  readonly stallMs?: number;
  /** A read over this file offset never returns. */
  readonly hangOffset?: number;
  /** O_DIRECT is refused. */
  readonly noDirect?: boolean;
  /** A part of the path of the files concerned. Default `.safetensors`. */
  readonly files?: string;
}

/**
 * The environment of a process whose reads go wrong by this plan (see io-faults.c); `report` is a
 * file for {@link faultHits}.
 */
export function faultEnv(plan: FaultPlan, report: string): Record<string, string> {
  const words = [
    plan.shortBytes === undefined ? undefined : `short=${plan.shortBytes}`,
    plan.eintrEvery === undefined ? undefined : `eintr=${plan.eintrEvery}`,
    plan.failOffset === undefined ? undefined : `fail=${plan.failOffset}:${plan.failErrno ?? "EIO"}`,
    plan.stallMs === undefined ? undefined : `stall=${plan.stallMs}`,
    plan.hangOffset === undefined ? undefined : `hang=${plan.hangOffset}`,
    plan.noDirect ? "nodirect" : undefined,
  ].filter((word) => word !== undefined);
  return {
    LD_PRELOAD: compile("io-faults.c", ["-shared", "-fPIC", "-ldl"]),
    MX_FAULTS: words.join(","),
    MX_FAULTS_REPORT: report,
    ...(plan.files === undefined ? {} : { MX_FAULTS_FILES: plan.files }),
  };
}

export type FaultHits = Readonly<Record<"reads" | "short" | "eintr" | "fail" | "stall" | "hang" | "nodirect", number>>;

/**
 * How often each fault was dealt out, summed over all processes that reported; zeros when none did.
 * A run without hits has tested nothing.
 */
export function faultHits(report: string): FaultHits {
  const hits = { reads: 0, short: 0, eintr: 0, fail: 0, stall: 0, hang: 0, nodirect: 0 };
  const text = existsSync(report) ? readFileSync(report, "utf8") : "";
  for (const [, kind, count] of text.matchAll(/(\w+)=(\d+)/g)) hits[kind as keyof FaultHits] += Number(count);
  return hits;
}

/**
 * Words to put in front of a command (`under` of {@link RunOptions}) so that io_uring, or only its
 * use, is refused in it with this errno.
 */
export function withoutIoUring(errno: "EPERM" | "ENOSYS" | "EOPNOTSUPP", calls: "all" | "enter" = "all"): string[] {
  return [compile("without-io-uring.c", []), calls, errno];
}
