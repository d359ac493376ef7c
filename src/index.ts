/// <reference types="node" preserve="true" />
export { activeArena, nativeLibraryPath, setActiveArena } from "./arena/active-arena.js";
export { VmmArena, type VmmArenaOptions } from "./arena/arena.js";
export { type CudaBackendOptions, type CudaLibraryOptions, cudaBackend, cudaFacts } from "./arena/cuda-backend.js";
export type { DeviceName } from "./arena/device-name.js";
export { hostBackend } from "./arena/host-backend.js";
export { type KeepPagesOptions, keptPageBytes, releaseKeptPages } from "./arena/kept-pages.js";
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
  CudaError,
  type ErrorFacts,
  GdsError,
  ModelExpressError,
  NativeError,
  NixlError,
  OptionError,
  PlanError,
  SampleError,
  TensorError,
  TransferError,
  VerifyError,
} from "./errors.js";
export type { ModelExpressEvent } from "./events.js";
export type { Borrow } from "./loader/borrow.js";
export { loadCheckpoint } from "./loader/load-checkpoint.js";
export type { LoadedModel } from "./loader/loaded-model.js";
export type { MemoryCheck } from "./loader/memory-check.js";
export type { LoadOptions } from "./loader/options.js";
export type { LoadReport, LoadTimes, MemoryReport, ShardReport } from "./loader/report.js";
export { type StreamOptions, streamCheckpoint } from "./loader/stream-checkpoint.js";
export type { Tensor, TensorArray, TensorArrays } from "./loader/tensor.js";
export type { CudaDeviceFacts, CudaFacts } from "./native/addon.js";
export type { Bytes } from "./native/hand-typed.js";
export type { LoadPlan, PlanJson, PlanPiece, PlanRange, PlanTotals, ShardPlan, TensorPlacement } from "./plan/load-plan.js";
export type { LoadSlack, PlanMemory } from "./plan/memory.js";
export type { Placement } from "./plan/placement.js";
export { type PlanOptions, planLoad } from "./plan/plan-load.js";
export type { NamePattern, NameSelector } from "./plan/select.js";
export type { Finding } from "./probe/finding.js";
export { probeGds } from "./probe/gds.js";
export type { AvailableMemory } from "./probe/memory.js";
export { type ProbeReport, probe } from "./probe/probe.js";
export type { NixlBatchSummary, ReadPath } from "./transfer/driver.js";
export { isGdsAvailable } from "./transfer/gds/available.js";
export type { DeviceBuffer, GdsBatch, GdsReport } from "./transfer/gds/batch.js";
export { type BatchLoadOptions, GdsTransferManager } from "./transfer/gds/manager.js";
export type { GdsOptions } from "./transfer/gds/options.js";
export type { GdsPath } from "./transfer/gds/path-statistics.js";
export type { GdsRange } from "./transfer/gds/ranges.js";
export { NixlAgent, type NixlAgentOptions, type RegisterOptions } from "./transfer/nixl/agent.js";
export type { AgentHandle } from "./transfer/nixl/agent-handle.js";
export { loadNixl, type NixlApi, type NixlApiOptions } from "./transfer/nixl/api.js";
export type { RegionLayout } from "./transfer/nixl/arena-regions.js";
export type { Pieces, SegmentKind } from "./transfer/nixl/descriptors.js";
export type { LibraryTried } from "./transfer/nixl/library-paths.js";
export type { Registration } from "./transfer/nixl/registration.js";
export type { NixlTransferOptions, NixlWaitOptions, Transfer } from "./transfer/nixl/transfer.js";
export type { Progress } from "./transfer/waiting.js";
