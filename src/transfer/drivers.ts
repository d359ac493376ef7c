import { type DriverName, driverNames } from "../envs.js";
import { deviceDriver } from "./device-driver.js";
import type { TransferDriver } from "./driver.js";
import { mapDriver } from "./map-driver.js";
import { nixlDriver } from "./nixl/driver.js";
import { autoDriver, ioUringDriver, preadDriver } from "./reading-driver.js";
import { stagedDriver } from "./staged/driver.js";

const drivers: Readonly<Record<DriverName, TransferDriver>> = {
  auto: autoDriver,
  pread: preadDriver,
  io_uring: ioUringDriver,
  map: mapDriver,
  nixl: nixlDriver,
  staged: stagedDriver,
};

/** The driver of that name; `auto` is one for the host and another for devices. */
export function driverOf(name: DriverName, memory: "host" | "device" = "host"): TransferDriver {
  return name === "auto" && memory === "device" ? deviceDriver : drivers[name];
}

/** Names of the drivers that fill memory of this kind. */
export function driversFilling(memory: "host" | "device"): readonly DriverName[] {
  return driverNames.filter((name) => driverOf(name, memory).capabilities.memory.includes(memory));
}
