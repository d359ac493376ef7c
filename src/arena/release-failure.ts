import { publish } from "../events.js";

/** How an address is written in messages and events. */
export function addressText(address: unknown): string {
  return typeof address === "bigint" ? `0x${address.toString(16)}` : String(address);
}

/** Memory or address space that could not be given back. */
export interface ReleaseFailure {
  readonly address: bigint;
  readonly bytes: number;
  readonly error: unknown;
}

/** Tells of what could not be given back where throwing would hide something or help nobody. */
export function publishReleaseFailure(operation: string, { address, bytes, error }: ReleaseFailure, after?: unknown): void {
  publish({
    event: "arena.release-failed",
    operation,
    address: addressText(address),
    bytes,
    message: error instanceof Error ? error.message : String(error),
    error,
    ...(after === undefined ? {} : { after }),
  });
}
