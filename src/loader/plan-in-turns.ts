import { setImmediate } from "node:timers/promises";
import type { LoadPlan } from "../plan/load-plan.js";
import { type PlanOptions, planSteps } from "../plan/plan-load.js";
import type { PlanSource } from "../plan/source.js";

/** How long planning may hold the event loop at a time; a step more can come on top. */
const turnMs = 4;

/** `planLoad` in turns of the event loop: a hundred thousand tensors take tens of milliseconds in code that is run for the first time. */
export async function planInTurns(source: PlanSource, options: PlanOptions): Promise<LoadPlan> {
  const steps = planSteps(source, options);
  for (let begin = performance.now(); ; ) {
    const step = steps.next();
    if (step.done) return step.value;
    if (performance.now() - begin < turnMs) continue;
    await setImmediate();
    begin = performance.now();
  }
}
