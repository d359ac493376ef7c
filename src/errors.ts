import { type ErrorCode, errorCodes } from "./error-codes.js";
import { plainData, shortOfCause } from "./plain-data.js";

/** Facts about a failure; each becomes a field of the error, so programs never parse messages. */
export interface ErrorFacts {
  /** Path of the file concerned. */
  readonly file?: string;
  /** Name of the tensor concerned. */
  readonly tensor?: string;
  /** File offset in bytes. */
  readonly offset?: number;
  /** Length in bytes. */
  readonly length?: number;
  /** What was being done: a system call, or a function of a library. */
  readonly operation?: string;
  /** Symbolic errno, such as `EIO`. */
  readonly errno?: string;
  /** Option or environment variable at fault. */
  readonly option?: string;
  readonly [fact: string]: unknown;
}

export interface ModelExpressErrorOptions {
  readonly facts?: ErrorFacts;
  readonly cause?: unknown;
}

/**
 * Base of all errors this package makes. `code` is stable; `docs/errors.md` lists every one with
 * cause and remedy.
 */
export class ModelExpressError extends Error {
  readonly code: ErrorCode;
  declare readonly file?: string;
  declare readonly tensor?: string;
  declare readonly offset?: number;
  declare readonly length?: number;
  declare readonly operation?: string;
  declare readonly errno?: string;
  declare readonly option?: string;
  /**
   * On errors of aborted and late loads: resolves when nothing is in flight any more. Until then
   * the memory is in quarantine: `free` and `close` over it throw `ERR_ARENA_BUSY`.
   */
  declare readonly settled?: Promise<void>;

  constructor(code: ErrorCode, message: string, options: ModelExpressErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = new.target.name;
    this.code = code;
    for (const [fact, value] of Object.entries(options.facts ?? {})) {
      if (value !== undefined && !(fact in this)) Object.defineProperty(this, fact, { value, enumerable: true });
    }
  }

  /** For logs: name, code, message, remedy and facts; of the cause what names it, not its stack. */
  toJSON(): Record<string, unknown> {
    const { name, code, message, cause } = this;
    const facts = Object.entries(this).filter(([fact]) => fact !== "name" && fact !== "code");
    return {
      name,
      code,
      message,
      remedy: errorCodes[code].remedy,
      ...Object.fromEntries(facts.map(([fact, value]) => [fact, plainData(value)])),
      ...(cause === undefined ? {} : { cause: shortOfCause(cause) }),
    };
  }
}

/**
 * A wrong argument, option or environment variable: the caller's mistake, found before anything was
 * done.
 */
export class OptionError extends ModelExpressError {}
/** A checkpoint that cannot be found, read, or that breaks a rule of the format. */
export class CheckpointError extends ModelExpressError {}
/** A load that cannot be planned, or whose plan does not fit this machine. */
export class PlanError extends ModelExpressError {}
/** Address space and memory. */
export class ArenaError extends ModelExpressError {}
/** Moving bytes: reads that fail, end early, come late, or facilities that are refused. */
export class TransferError extends ModelExpressError {}
/** Access to a loaded tensor or model. */
export class TensorError extends ModelExpressError {}
/** The native addon: missing, of another platform or version. */
export class NativeError extends ModelExpressError {}
/** The CUDA driver: its library, devices, and memory on them. */
export class CudaError extends ModelExpressError {}
/** NIXL: its library, agents, registrations and transfers. */
export class NixlError extends ModelExpressError {}
/** Loads by a GdsTransferManager. */
export class GdsError extends ModelExpressError {}
/** A digest that does not match. */
export class VerifyError extends ModelExpressError {}
/** A sample checkpoint that cannot be written. */
export class SampleError extends ModelExpressError {}

const classByPrefix: readonly (readonly [string, typeof ModelExpressError])[] = [
  ["ERR_OPTION_", OptionError],
  ["ERR_ENV_", OptionError],
  ["ERR_CHECKPOINT_", CheckpointError],
  ["ERR_PLAN_", PlanError],
  ["ERR_MEMORY_", PlanError],
  ["ERR_ARENA_", ArenaError],
  ["ERR_TRANSFER_", TransferError],
  ["ERR_TENSOR_", TensorError],
  ["ERR_MODEL_", TensorError],
  ["ERR_NATIVE_", NativeError],
  ["ERR_CUDA_", CudaError],
  ["ERR_NIXL_", NixlError],
  ["ERR_GDS_", GdsError],
  ["ERR_VERIFY_", VerifyError],
  ["ERR_SAMPLE_", SampleError],
];

/** Whether something thrown is the package's error of this code. */
export function hasCode(thrown: unknown, code: ErrorCode): thrown is ModelExpressError {
  return thrown instanceof ModelExpressError && thrown.code === code;
}

/** Makes the error of the class that belongs to a code's layer. */
export function errorOf(code: ErrorCode, message: string, options?: ModelExpressErrorOptions): ModelExpressError {
  const Class = classByPrefix.find(([prefix]) => code.startsWith(prefix))?.[1] ?? ModelExpressError;
  return new Class(code, message, options);
}
