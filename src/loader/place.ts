import { givenBack } from "../arena/giving-back.js";
import { type Keeper, openKeeper } from "../arena/kept-pages.js";
import type { VmmBackend } from "../arena/vmm-backend.js";
import { abortable } from "../checkpoint/abortable.js";
import { addon } from "../native/load.js";
import type { PlanOptions } from "../plan/plan-load.js";
import { freeMemoryOf, type OpenDevice, openDevice } from "../probe/device-memory.js";
import { before, type Limits } from "../transfer/limits.js";
import { abandon } from "../transfer/waiting.js";
import type { LoadSettings } from "./options.js";

/** Where a load's memory will come from. */
export interface Place {
  /**
   * Plan options with what is free there. The host's memory is asked for at the planning itself.
   */
  readonly plan: PlanOptions;
  /** Of a load to a device that gets an arena of its own, and of one that keeps pages. */
  readonly backend: VmmBackend | undefined;
  /** Of a load whose pages are kept. */
  readonly keeper: Keeper | undefined;
}

/**
 * Opens the device that a load goes to, and asks for its free memory.
 * @throws what `openDevice` throws; ERR_TRANSFER_TIMEOUT, ERR_ABORTED
 */
export async function openPlace(settings: LoadSettings, limits: Limits): Promise<Place> {
  const { device, arena } = settings;
  await givenBack();
  const plan = { ...settings.plan, hostPageBytes: addon().pageBytes() };
  if (device === "host") {
    const keeper = settings.keepPages && openKeeper(settings.keepPages);
    return { plan, backend: keeper?.backend, keeper };
  }
  const opening: Promise<Partial<OpenDevice> & Pick<OpenDevice, "available">> =
    arena === undefined ? openDevice(device) : freeMemoryOf(device, arena.native).then((available) => ({ available }));
  try {
    const { backend, available } = await before(limits, `the CUDA driver did not answer for ${device}`, (signal) =>
      abortable(opening, signal),
    );
    return { plan: { ...plan, availableMemory: available }, backend, keeper: undefined };
  } catch (reason) {
    // What comes too late is given back when it is collected.
    throw await abandon([], reason, () =>
      opening.then(
        () => {},
        () => {},
      ),
    );
  }
}
