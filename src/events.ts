import { channel } from "node:diagnostics_channel";
import { debuglog } from "node:util";

/**
 * What the library tells about itself: published on the diagnostics channel `modelexpress` and,
 * under `NODE_DEBUG=modelexpress`, written by Node's own debug log. The library never writes to
 * stdout or stderr otherwise.
 */
export interface ModelExpressEvent {
  /** `arena.reserve`, `arena.release-failed`, `load.fallback`, `probe.reason`, ... */
  readonly event: string;
  readonly [fact: string]: unknown;
}

const events = channel("modelexpress");
const debug = debuglog("modelexpress");

export function publish(event: ModelExpressEvent): void {
  if (events.hasSubscribers) events.publish(event);
  debug("%j", event);
}
