import type { DriverName } from "../envs.js";
import type { TransferDriver } from "./driver.js";
import { mapDriver } from "./map-driver.js";
import { nixlDriver } from "./nixl/driver.js";
import { autoDriver, ioUringDriver, preadDriver } from "./reading-driver.js";

const drivers: Readonly<Record<DriverName, TransferDriver>> = {
  auto: autoDriver,
  pread: preadDriver,
  io_uring: ioUringDriver,
  map: mapDriver,
  nixl: nixlDriver,
};

/** The driver of that name. */
export function driverOf(name: DriverName): TransferDriver {
  return drivers[name];
}
