import type { NativeNixlAgent } from "../../native/addon.js";

/** The agent that a registration or transfer belongs to, as far as these need it. */
export interface AgentHandle {
  readonly name: string;
  readonly closed: boolean;
  /** Resolves when the agent has ended; see `NixlAgent.ended`. */
  readonly ended: Promise<void>;
  /** @internal */
  readonly native: NativeNixlAgent;
}
