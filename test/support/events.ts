import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { onTestFinished } from "vitest";
import type { ModelExpressEvent } from "../../src/events.js";

/** What the library publishes from now on to the end of the test, in order. */
export function collectEvents(): ModelExpressEvent[] {
  const events: ModelExpressEvent[] = [];
  const listen = (message: unknown) => {
    events.push(message as ModelExpressEvent);
  };
  subscribe("modelexpress", listen);
  onTestFinished(() => {
    unsubscribe("modelexpress", listen);
  });
  return events;
}
