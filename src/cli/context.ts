import type { Output } from "./output.js";

/** What a command is given besides its arguments. */
export interface Context {
  readonly output: Output;
  /** Aborts when the user interrupts; the reason is an {@link Interrupted}. */
  readonly signal: AbortSignal;
}
