import { readFileSync } from "node:fs";

/** One mapping of this process that a range touches. */
export interface Mapping {
  readonly start: bigint;
  readonly end: bigint;
  /** As `/proc/self/smaps` has them: `rd` readable, `dc` not inherited by child processes, ... */
  readonly flags: readonly string[];
}

/** The mappings that `[address, address + bytes)` touches, in the order of addresses. */
export function mappingsOf(address: bigint, bytes: number): Mapping[] {
  return readFileSync("/proc/self/smaps", "utf8")
    .split(/\n(?=[0-9a-f]+-[0-9a-f]+ )/)
    .map((text) => {
      const [, start, end] = /^([0-9a-f]+)-([0-9a-f]+) /.exec(text) ?? [];
      const flags = /^VmFlags: (.*)$/m.exec(text)?.[1]?.trim().split(" ") ?? [];
      return { start: BigInt(`0x${start}`), end: BigInt(`0x${end}`), flags };
    })
    .filter(({ start, end }) => start < address + BigInt(bytes) && end > address);
}
