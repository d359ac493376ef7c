// The platforms that addons are built for, by the names that their packages have.
import { readFileSync } from "node:fs";

/** Oldest GNU C library that prebuilt addons run with: that of Node's own binaries. */
export const oldestGlibc = "2.28";

/** The first musl that has statx and preadv2, which the addon calls. */
export const oldestMusl = "1.2.5";

export const platforms = {
  "linux-x64-gnu": { target: "x86_64-unknown-linux-gnu", machine: "X86-64", cpu: "x64", libc: "glibc" },
  "linux-x64-musl": { target: "x86_64-unknown-linux-musl", machine: "X86-64", cpu: "x64", libc: "musl" },
  "linux-arm64-gnu": { target: "aarch64-unknown-linux-gnu", machine: "AArch64", cpu: "arm64", libc: "glibc" },
  "linux-arm64-musl": { target: "aarch64-unknown-linux-musl", machine: "AArch64", cpu: "arm64", libc: "musl" },
};

/** The platform that this process runs on. */
export function thisPlatform() {
  const libc = /\/(ld-musl-[^/\n]*|libc\.so)$/m.test(readFileSync("/proc/self/maps", "latin1")) ? "musl" : "gnu";
  return `${process.platform}-${process.arch}-${libc}`;
}

/** File name of a platform's addon. */
export const addonName = (platform) => `modelexpress.${platform}.node`;
