import type { DeviceName } from "../arena/device-name.js";
import { errorOf } from "../errors.js";
import type { AvailableMemory } from "../probe/memory.js";
import { formatBytes } from "../units.js";

/** What a load needs, held against what there was when the plan was made. */
export interface PlanMemory {
  /** Bytes of memory that the tensors take; 0 where files are mapped and nothing is copied. */
  readonly requiredBytes: number;
  /** Kept free beside them, for page tables and read buffers: 1/16 of `requiredBytes`, at most 64 MiB. */
  readonly slackBytes: number;
  /** null where the kernel does not say. */
  readonly availableBytes: number | null;
  /** What sets `availableBytes`: `MemAvailable`, the folder of a control group, `all memory of cuda:N`, or `unknown`. */
  readonly limitedBy: string;
  /** True where it fits, or where it is not known. */
  readonly fits: boolean;
}

const maxSlackBytes = 64 * 2 ** 20;

export function planMemory(requiredBytes: number, available: AvailableMemory): PlanMemory {
  const slackBytes = Math.min(maxSlackBytes, Math.ceil(requiredBytes / 16));
  const fits = requiredBytes === 0 || available.bytes === null || requiredBytes + slackBytes <= available.bytes;
  return Object.freeze({ requiredBytes, slackBytes, availableBytes: available.bytes, limitedBy: available.limitedBy, fits });
}

/**
 * Refuses a plan that does not fit, before anything is allocated for it.
 * @throws ERR_MEMORY_WOULD_NOT_FIT with `requiredBytes`, `slackBytes`, `availableBytes` and `limitedBy`
 */
export function assertFits(plan: {
  readonly memory: PlanMemory;
  readonly device: DeviceName;
  readonly checkpoint: { readonly path: string };
}): void {
  const { requiredBytes, slackBytes, availableBytes, limitedBy, fits } = plan.memory;
  if (fits || availableBytes === null) return;
  const otherwise =
    plan.device === "host"
      ? "load fewer tensors with `include`, map the files with the driver `map`, or raise the limit"
      : "load fewer tensors with `include`, or to a device with more memory";
  throw errorOf(
    "ERR_MEMORY_WOULD_NOT_FIT",
    `the load needs ${formatBytes(requiredBytes)} and ${formatBytes(slackBytes)} beside it, and ${formatBytes(availableBytes)} are available ` +
      `(${limitedBy}): ${otherwise}`,
    { facts: { requiredBytes, slackBytes, availableBytes, limitedBy, checkpoint: plan.checkpoint.path } },
  );
}
