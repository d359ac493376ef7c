import { publish } from "../events.js";
import { addressText } from "../plain-data.js";

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
