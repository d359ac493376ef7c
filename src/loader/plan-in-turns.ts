import { setImmediate } from "node:timers/promises";
import { abortable } from "../checkpoint/abortable.js";
import type { LoadPlan } from "../plan/load-plan.js";
import { type PlanOptions, planSteps } from "../plan/plan-load.js";
import type { PlanSource } from "../plan/source.js";
import { readMemoryOf } from "../probe/device-memory.js";
import { before, type Limits } from "../transfer/limits.js";
import type { LoadSettings } from "./options.js";

/**
 * Plan options with the memory of the device that the load's own arena would be on. The host's is read at the planning itself.
 * @throws ERR_CUDA_LIBRARY, ERR_CUDA_SYMBOLS, ERR_CUDA_NOT_INITIALIZED, ERR_CUDA_CALL; ERR_TRANSFER_TIMEOUT, ERR_ABORTED
 */
export async function withMemory({ device, arena, plan }: LoadSettings, limits: Limits): Promise<PlanOptions> {
  if (device === "host" || arena !== undefined) return plan;
  const asked = readMemoryOf(device);
  return { ...plan, availableMemory: await before(limits, "the CUDA driver did not answer", (signal) => abortable(asked, signal)) };
}

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
