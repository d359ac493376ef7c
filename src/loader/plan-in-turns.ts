import { setImmediate } from "node:timers/promises";
import type { LoadPlan } from "../plan/load-plan.js";
import { type PlanOptions, planSteps } from "../plan/plan-load.js";
import type { PlanSource } from "../plan/source.js";

/** How long planning may hold the event loop at a time; a step more can come on top. */
const turnMs = 4;

/**
 * `planLoad` in turns of the event loop: a hundred thousand tensors take tens of milliseconds in
 * code that is run for the first time. `use` gets the plan in the turn in which the memory there is
 * was asked for.
 */
export async function planInTurns<T>(source: PlanSource, options: PlanOptions, use: (plan: LoadPlan) => T): Promise<T> {
  const steps = planSteps(source, options);
  for (let begin = performance.now(); ; ) {
    const step = steps.next();
    if (step.done) return use(step.value);
    if (performance.now() - begin < turnMs) continue;
    await setImmediate();
    begin = performance.now();
  }
}
