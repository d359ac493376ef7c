import { publish } from "../../events.js";

/** An agent that reads files, and how. */
export interface Reader {
  /** Name of the agent. */
  readonly agent: string;
  readonly plugin: string;
  /** `host` or `cuda:N`. */
  readonly device: string;
  readonly threads: number;
  readonly maxChunkBytes: number;
}

/** Tells that an agent was made to read files. */
export function publishReader(reader: Reader): void {
  publish({ event: "gds.agent-created", ...reader });
}
