import type { DeviceName } from "../arena/device-name.js";
import { errorOf } from "../errors.js";
import type { AvailableMemory } from "../probe/memory.js";
import { type DriverBytes, noDriverBytes } from "../transfer/driver-bytes.js";
import { formatBytes, hugePageBytes, roundUp } from "../units.js";

/** What a load needs, held against what there was when the plan was made. */
export interface PlanMemory {
  /**
   * Bytes that the tensors take of the plan's device: of the host in whole pages, huge ones as far
   * as they are filled; of a device in whole granules of 2 MiB; 0 where files are mapped and
   * nothing is copied.
   */
  readonly requiredBytes: number;
  /** What the load takes of the host's memory beside them, at most: the sum of `slack`. */
  readonly slackBytes: number;
  readonly slack: LoadSlack;
  /**
   * What there is on the plan's device, less what other loads of this process have yet to take;
   * null where nobody says.
   */
  readonly availableBytes: number | null;
  /**
   * What sets `availableBytes`: `MemAvailable`, the folder of a control group,
   * `free memory of cuda:N`, `not asked`, or `unknown`.
   */
  readonly limitedBy: string;
  /** The same of the host, which `slackBytes` come out of where the tensors go to a device. */
  readonly hostAvailableBytes: number | null;
  readonly hostLimitedBy: string;
  /** True where it fits, or where it is not known. */
  readonly fits: boolean;
}

/** Memory of the host in bytes that a load takes beside the tensors. */
export interface LoadSlack extends DriverBytes {
  /** The kernel's page tables of all that is filled. */
  readonly pageTableBytes: number;
  /**
   * What JavaScript and malloc take for the load: columns, objects, and the room that their heaps
   * grow by.
   */
  readonly processBytes: number;
}

/** What a plan is held against. */
export interface MemoryAround {
  readonly device: AvailableMemory;
  readonly host: AvailableMemory;
}

/** An entry of 8 bytes for each page of 4 KiB; the kernel keeps it ready behind a huge page too. */
const bytesOfPageTable = 512;
/** Heaps grow in steps; the larger the load, the longer it runs meanwhile. */
const minProcessBytes = 2 ** 20;
const maxProcessBytes = 16 * 2 ** 20;
/** Columns of pieces on both sides, and the blocks that the native half cuts. */
const bytesOfPiece = 256;
const bytesOfBlock = 64;

/** What a plan's load takes. */
export interface LoadNeeds {
  readonly device: DeviceName;
  readonly allocationBytes: number;
  /** True where files are mapped over the allocation, which then takes page tables alone. */
  readonly mapped: boolean;
  readonly pieces: number;
  /** Of tensors. */
  readonly bytes: number;
  readonly maxChunkBytes: number;
  readonly pageBytes: number;
  readonly driver: DriverBytes;
}

export function planMemory(needs: LoadNeeds, around: MemoryAround): PlanMemory {
  const { device, allocationBytes, mapped, pageBytes } = needs;
  const requiredBytes = mapped ? 0 : roundUp(allocationBytes, device === "host" ? pageBytes : hugePageBytes);
  const slack = allocationBytes === 0 ? noSlack : loadSlack(needs);
  const slackBytes = Object.values(slack).reduce((sum, bytes) => sum + bytes, 0);
  return held({ requiredBytes, slackBytes, slack }, device, around);
}

/** The same, with the host's memory as it is now. */
export function heldAgainst(memory: PlanMemory, device: DeviceName, host: AvailableMemory): PlanMemory {
  const { availableBytes: bytes, limitedBy } = memory;
  return held(memory, device, { device: device === "host" ? host : { bytes, limitedBy }, host });
}

type Needed = Pick<PlanMemory, "requiredBytes" | "slackBytes" | "slack">;

function held({ requiredBytes, slackBytes, slack }: Needed, device: DeviceName, around: MemoryAround): PlanMemory {
  const holds = ({ bytes }: AvailableMemory, needed: number) => bytes === null || needed <= bytes;
  const fits =
    device === "host"
      ? holds(around.host, requiredBytes + slackBytes)
      : holds(around.device, requiredBytes) && holds(around.host, slackBytes);
  return Object.freeze({
    requiredBytes,
    slackBytes,
    slack,
    availableBytes: around.device.bytes,
    limitedBy: around.device.limitedBy,
    hostAvailableBytes: around.host.bytes,
    hostLimitedBy: around.host.limitedBy,
    fits,
  });
}

const noSlack: LoadSlack = Object.freeze({ pageTableBytes: 0, processBytes: 0, ...noDriverBytes });

function loadSlack({ device, allocationBytes, pieces, bytes, maxChunkBytes, driver }: LoadNeeds): LoadSlack {
  // Beside those that end with their piece.
  const blocks = Math.ceil(bytes / Math.min(maxChunkBytes, hugePageBytes));
  const addressedBytes = (device === "host" ? allocationBytes : 0) + driver.pinnedBytes + driver.bounceBytes;
  const growth = Math.min(maxProcessBytes, minProcessBytes + Math.ceil(allocationBytes / 32));
  return Object.freeze({
    pageTableBytes: roundUp(Math.ceil(addressedBytes / bytesOfPageTable), 4096),
    processBytes: growth + pieces * bytesOfPiece + blocks * bytesOfBlock,
    ...driver,
  });
}

/**
 * Refuses a plan that does not fit, before anything is allocated for it.
 * @throws ERR_MEMORY_WOULD_NOT_FIT with `requiredBytes`, `slackBytes`, `availableBytes` and
 *   `limitedBy`
 */
export function assertFits({ memory, device, checkpoint }: Fitting): void {
  if (memory.fits) return;
  const { requiredBytes, slackBytes, availableBytes, limitedBy, hostAvailableBytes, hostLimitedBy } = memory;
  const short = { requiredBytes, slackBytes, availableBytes, limitedBy };
  const facts = device === "host" ? short : { ...short, hostAvailableBytes, hostLimitedBy };
  throw errorOf(
    "ERR_MEMORY_WOULD_NOT_FIT",
    `${whyNot(memory, device)}: ${remedy(device)}, or switch the check off (memoryCheck: "ignore")`,
    {
      facts: { ...facts, checkpoint: checkpoint.path },
    },
  );
}

interface Fitting {
  readonly memory: PlanMemory;
  readonly device: DeviceName;
  readonly checkpoint: { readonly path: string };
}

/** What the check says of a plan that does not fit. */
export function whyNot(memory: PlanMemory, device: DeviceName): string {
  const { requiredBytes, slackBytes } = memory;
  const available = (bytes: number | null, limitedBy: string) => `${formatBytes(bytes ?? 0)} are available (${limitedBy})`;
  const [here, host] = [available(memory.availableBytes, memory.limitedBy), available(memory.hostAvailableBytes, memory.hostLimitedBy)];
  if (device === "host") return `the load needs ${formatBytes(requiredBytes)} and ${formatBytes(slackBytes)} beside it, and ${here}`;
  if (memory.availableBytes !== null && requiredBytes > memory.availableBytes)
    return `the load needs ${formatBytes(requiredBytes)} of ${device}, and ${here}`;
  return `the load to ${device} needs ${formatBytes(slackBytes)} of the host's memory beside it, and ${host}`;
}

function remedy(device: DeviceName): string {
  return device === "host"
    ? "load fewer tensors with `include`, map the files with the driver `map`, raise the limit"
    : "load fewer tensors with `include`, free memory there, load to a device with more of it";
}
