export { VmmArena, type VmmArenaOptions } from "./arena/arena.js";
export { hostBackend } from "./arena/host-backend.js";
export { DEFAULT_ARENA_BYTES } from "./arena/options.js";
export { StubBackend } from "./arena/stub-backend.js";
export type { VmmBackend } from "./arena/vmm-backend.js";
export { Checkpoint, type Shard, type TensorInfo } from "./checkpoint/checkpoint.js";
export { type Dtype, type DtypeInfo, dtypes } from "./checkpoint/dtype.js";
export { type OpenCheckpointOptions, openCheckpoint } from "./checkpoint/open.js";
export { type ErrorCode, errorCodes } from "./error-codes.js";
export {
  ArenaError,
  CheckpointError,
  type ErrorFacts,
  ModelExpressError,
  NativeError,
  OptionError,
  PlanError,
  SampleError,
  TensorError,
  TransferError,
  VerifyError,
} from "./errors.js";
export type { ModelExpressEvent } from "./events.js";
export { loadCheckpoint } from "./loader/load-checkpoint.js";
export type { LoadedModel } from "./loader/loaded-model.js";
export type { LoadOptions } from "./loader/options.js";
export type { LoadReport, LoadTimes, ReadPath, ShardReport } from "./loader/report.js";
export { type StreamOptions, streamCheckpoint } from "./loader/stream-checkpoint.js";
export type { Tensor, TensorArray } from "./loader/tensor.js";
export type { LoadPlan, PlanChunk, PlanJson, PlanRange, PlanTotals, ShardPlan, TensorPlacement } from "./plan/load-plan.js";
export type { PlanMemory } from "./plan/memory.js";
export type { Placement } from "./plan/placement.js";
export { type PlanOptions, planLoad } from "./plan/plan-load.js";
export type { NamePattern, NameSelector } from "./plan/select.js";
export type { Finding } from "./probe/finding.js";
export type { AvailableMemory } from "./probe/memory.js";
export { type ProbeReport, probe } from "./probe/probe.js";
export type { Progress } from "./transfer/waiting.js";
