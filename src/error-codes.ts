/** What the documentation says of one error code, and the exit code that `mx` ends with (sysexits.h). */
export interface ErrorCodeEntry {
  readonly exit: 64 | 65 | 66 | 69 | 70 | 74 | 75;
  readonly cause: string;
  readonly remedy: string;
}

/** Every error code of the package, in the order of its layers. `docs/errors.md` is generated from this table. */
export const errorCodes = {
  ERR_OPTION_INVALID: {
    exit: 64,
    cause: "An option or argument has a wrong type, or a value out of its range.",
    remedy: "The message names the option and what it takes.",
  },
  ERR_OPTION_UNKNOWN: {
    exit: 64,
    cause: "An option, driver, placement or device of that name does not exist.",
    remedy: "Use one of the names in the message.",
  },
  ERR_OPTION_CONFLICT: {
    exit: 64,
    cause: "Two options exclude each other, for example the `map` driver and aligned placement.",
    remedy: "Drop one of the two that the message names.",
  },
  ERR_ENV_INVALID: {
    exit: 64,
    cause: "An environment variable holds a value that its row in docs/environment.md does not allow.",
    remedy: "Set it to an allowed value, or unset it.",
  },
  ERR_CHECKPOINT_NOT_FOUND: {
    exit: 66,
    cause: "The path does not exist, or a folder holds no safetensors weights.",
    remedy: "Check the path; the message says which names were looked for.",
  },
  ERR_CHECKPOINT_URL_UNSUPPORTED: {
    exit: 64,
    cause: "The checkpoint was given as a URL whose scheme is not `file:`.",
    remedy: "Download it first, and give the local path.",
  },
  ERR_CHECKPOINT_AMBIGUOUS: {
    exit: 64,
    cause: "A folder holds several families of weights side by side and none has the standard name.",
    remedy: "Pick one of those in the message, with the option `weights` (`--weights`) or by giving its path.",
  },
  ERR_CHECKPOINT_PERMISSION: {
    exit: 66,
    cause: "A file or folder of the checkpoint may not be read by this user.",
    remedy: "Change its permissions, or run as a user who may read it.",
  },
  ERR_CHECKPOINT_IO: {
    exit: 74,
    cause: "The operating system failed to open, stat or read a file of the checkpoint.",
    remedy: "Look up the errno in the message; check the disk or the mount.",
  },
  ERR_CHECKPOINT_SHARD_MISSING: {
    exit: 66,
    cause: "The index names a shard that is not there, usually an incomplete download.",
    remedy: "Download the missing shard.",
  },
  ERR_CHECKPOINT_NOT_REGULAR: {
    exit: 66,
    cause: "A folder, a named pipe or a device stands where a file of the checkpoint should be.",
    remedy: "Give a safetensors file, an index, or the folder that holds them.",
  },
  ERR_CHECKPOINT_FILE_TOO_SMALL: {
    exit: 65,
    cause: "The file is empty or shorter than the 8 bytes of the header length.",
    remedy: "Download the file again.",
  },
  ERR_CHECKPOINT_HEADER_TOO_LARGE: {
    exit: 65,
    cause: "The first 8 bytes give a header length above 100,000,000; often the file is no safetensors file at all.",
    remedy: "The message says what the file looks like (Git-LFS pointer, HTML page, ...). Get the real file.",
  },
  ERR_CHECKPOINT_HEADER_TRUNCATED: {
    exit: 65,
    cause: "The file ends inside its header.",
    remedy: "Download the file again.",
  },
  ERR_CHECKPOINT_HEADER_NOT_UTF8: {
    exit: 65,
    cause: "The header is not valid UTF-8.",
    remedy: "The writer of the file is at fault, or the file is damaged.",
  },
  ERR_CHECKPOINT_HEADER_NOT_JSON: {
    exit: 65,
    cause: "The header is not one JSON document.",
    remedy: "The writer of the file is at fault, or the file is damaged.",
  },
  ERR_CHECKPOINT_HEADER_TYPE: {
    exit: 65,
    cause: "A part of the header has the wrong type: a missing field, a number that is no unsigned integer, a third offset.",
    remedy: "The writer of the file is at fault.",
  },
  ERR_CHECKPOINT_DUPLICATE_KEY: {
    exit: 65,
    cause: "A key occurs twice in one JSON object of the header or of the index.",
    remedy: "The writer of the file is at fault; two readers could see two different checkpoints.",
  },
  ERR_CHECKPOINT_UNKNOWN_DTYPE: {
    exit: 65,
    cause: "A tensor has a dtype outside the 22 of the format.",
    remedy: "Convert the tensor with the tool that wrote it.",
  },
  ERR_CHECKPOINT_METADATA: {
    exit: 65,
    cause: "`__metadata__` is not a map from strings to strings.",
    remedy: "The writer of the file is at fault.",
  },
  ERR_CHECKPOINT_OVERFLOW: {
    exit: 65,
    cause: "A shape or an offset overflows 64 bits.",
    remedy: "The file is damaged or hostile.",
  },
  ERR_CHECKPOINT_SUBBYTE_MISALIGNED: {
    exit: 65,
    cause: "A tensor of a sub-byte dtype does not end at a byte.",
    remedy: "The writer of the file is at fault.",
  },
  ERR_CHECKPOINT_SIZE_MISMATCH: {
    exit: 65,
    cause: "A tensor's shape and dtype do not give the number of bytes of its range.",
    remedy: "The writer of the file is at fault.",
  },
  ERR_CHECKPOINT_OFFSETS: {
    exit: 65,
    cause: "The ranges of the tensors overlap, leave a hole, or do not start at 0.",
    remedy: "The writer of the file is at fault.",
  },
  ERR_CHECKPOINT_FILE_TRUNCATED: {
    exit: 65,
    cause: "The file is shorter than its header says, usually an incomplete download.",
    remedy: "Download the file again.",
  },
  ERR_CHECKPOINT_TRAILING_BYTES: {
    exit: 65,
    cause: "Bytes follow the last tensor.",
    remedy: "The writer of the file is at fault, or something was appended.",
  },
  ERR_CHECKPOINT_UNREPRESENTABLE: {
    exit: 65,
    cause: "An (empty) tensor has a dimension above 2^53 - 1, which a JavaScript number cannot hold.",
    remedy: "Such a tensor cannot be loaded by this package.",
  },
  ERR_CHECKPOINT_INDEX_INVALID: {
    exit: 65,
    cause: "An index file is not JSON, lacks `weight_map`, or maps a tensor to something that is no file name.",
    remedy: "Download the index again.",
  },
  ERR_CHECKPOINT_INDEX_PATH_ESCAPE: {
    exit: 65,
    cause: "An index names a shard outside of its own folder.",
    remedy: "Do not trust this checkpoint.",
  },
  ERR_CHECKPOINT_INDEX_TENSOR_MISSING: {
    exit: 65,
    cause: "The index assigns a tensor to a shard that does not hold it.",
    remedy: "Index and shards are of different versions; download them together.",
  },
  ERR_CHECKPOINT_DUPLICATE_TENSOR: {
    exit: 65,
    cause: "Without an index, two shards hold a tensor of the same name.",
    remedy: "Give the index, or one of the files.",
  },
  ERR_PLAN_TENSOR_UNKNOWN: {
    exit: 64,
    cause: "`include` or `exclude` names a tensor, or has a pattern, that matches nothing in the checkpoint.",
    remedy: "See the names with `mx inspect PATH --tensors`.",
  },
  ERR_MEMORY_WOULD_NOT_FIT: {
    exit: 69,
    cause: "The load needs more memory than is available (MemAvailable, the limit of the cgroup).",
    remedy: "Load fewer tensors (`include`), use the `map` driver, or a larger machine or limit.",
  },
  ERR_ARENA_SIZE: {
    exit: 64,
    cause: "A size given to an arena is not a positive safe integer.",
    remedy: "Pass the bytes wanted.",
  },
  ERR_ARENA_ALIGNMENT: {
    exit: 64,
    cause: "An alignment is no power of two, or larger than the arena's granularity.",
    remedy: "Ask for at most `arena.granularity`.",
  },
  ERR_ARENA_BACKEND_REQUIRED: {
    exit: 64,
    cause: "An arena was made without a backend, or with an object that does not implement VmmBackend.",
    remedy: "Pass `hostBackend()`, or your own backend.",
  },
  ERR_ARENA_BACKEND_RESULT: {
    exit: 70,
    cause: "A backend returned something that the contract of VmmBackend does not allow, such as a handle that is no bigint.",
    remedy: "The backend is at fault.",
  },
  ERR_ARENA_GRANULARITY: {
    exit: 69,
    cause: "The backend reports a granularity that is no positive power of two.",
    remedy: "The backend is at fault.",
  },
  ERR_ARENA_RESERVE_REFUSED: {
    exit: 69,
    cause: "The operating system refused to reserve the address space (`ulimit -v`, a container's limit).",
    remedy: "Ask for less with `totalBytes`, or raise the limit.",
  },
  ERR_ARENA_EXHAUSTED: {
    exit: 69,
    cause: "An allocation would go past the reserved range; freed addresses are never handed out again.",
    remedy: "Reserve more with `totalBytes`.",
  },
  ERR_ARENA_OUT_OF_MEMORY: {
    exit: 69,
    cause: "The operating system refused to map memory into the arena.",
    remedy: "Free memory, raise the limit, or load less.",
  },
  ERR_ARENA_CLOSED: {
    exit: 70,
    cause: "`malloc` or a load was asked of an arena after `close()`.",
    remedy: "Make a new arena.",
  },
  ERR_ARENA_BUSY: {
    exit: 70,
    cause: "`free` or `close` over memory that a transfer still uses.",
    remedy: "Await the load, or the `settled` promise of its error, first.",
  },
  ERR_ARENA_REENTRANT: {
    exit: 70,
    cause: "A backend called the arena that was calling it.",
    remedy: "The backend is at fault.",
  },
  ERR_ARENA_ADDRESS: {
    exit: 70,
    cause: "A range of addresses does not lie within one live allocation of the arena.",
    remedy: "Pass what `malloc` returned.",
  },
  ERR_ARENA_NOT_LOADABLE: {
    exit: 64,
    cause: "A load was asked into an arena whose backend does not say that its memory can be written by the host.",
    remedy: 'Use `hostBackend()`, or declare `memory: "host"` on the backend.',
  },
  ERR_ARENA_RELEASE_FAILED: {
    exit: 74,
    cause: "The operating system failed to give memory or address space back.",
    remedy: "See the errno; the arena counts as closed.",
  },
  ERR_TRANSFER_OPEN: {
    exit: 74,
    cause: "A shard could not be opened when its bytes were to be read.",
    remedy: "See the errno; at EMFILE raise `ulimit -n` or load less at a time.",
  },
  ERR_TRANSFER_NO_THREAD: {
    exit: 69,
    cause: "The system refused to start a native thread.",
    remedy: "Raise the limit on processes (`ulimit -u`, the cgroup's pids.max).",
  },
  ERR_TRANSFER_READ: {
    exit: 74,
    cause: "A read failed; file, offset and errno are in the error.",
    remedy: "Check the disk or the mount (`dmesg`).",
  },
  ERR_TRANSFER_UNEXPECTED_END: {
    exit: 74,
    cause: "A read found the end of the file before the end of a tensor: the file was cut while it was read.",
    remedy: "Load again once nobody writes the file.",
  },
  ERR_TRANSFER_FILE_CHANGED: {
    exit: 74,
    cause: "A file's size, inode or modification time changed between reading its header and the end of the load.",
    remedy: "Load again once nobody writes the file.",
  },
  ERR_TRANSFER_INCOMPLETE: {
    exit: 70,
    cause: "The count of bytes in place differs from the plan; a fault of this package.",
    remedy: "Please report it.",
  },
  ERR_TRANSFER_TIMEOUT: {
    exit: 75,
    cause: "The load did not end within `timeoutMs`.",
    remedy: "Allow more time, or look at the storage; the memory is free again once the error's `settled` resolves.",
  },
  ERR_TRANSFER_STUCK: {
    exit: 75,
    cause: "Reads were still in flight `closeTimeoutMs` after an abort; their memory cannot be given back yet.",
    remedy: "Look at the storage; the process can exit all the same.",
  },
  ERR_TRANSFER_IO_URING_REFUSED: {
    exit: 69,
    cause: "The driver `io_uring` was asked for by name, and the kernel or the container refuses io_uring.",
    remedy: "Use the driver `auto` or `pread`, or allow io_uring (seccomp profile, kernel.io_uring_disabled).",
  },
  ERR_TRANSFER_DIRECT_REFUSED: {
    exit: 69,
    cause: "The driver `io_uring` was asked for by name, and the file system refuses O_DIRECT.",
    remedy: "Use the driver `auto` or `pread`.",
  },
  ERR_TRANSFER_MAP: {
    exit: 74,
    cause: "A file could not be mapped into memory.",
    remedy: "See the errno; use a copying driver.",
  },
  ERR_TRANSFER_ABORTED: {
    exit: 75,
    cause: "A transfer was stopped because the model or stream it fills was closed.",
    remedy: "None needed: it follows from a close.",
  },
  ERR_TENSOR_VIEW_TOO_LARGE: {
    exit: 64,
    cause: "A view is longer than the largest ArrayBuffer of this Node version (4 GiB in Node 20).",
    remedy: "Take parts: `bytes(offset, length)`.",
  },
  ERR_TENSOR_RANGE: {
    exit: 64,
    cause: "A view was asked beyond the end of its tensor.",
    remedy: "Stay within `byteLength`.",
  },
  ERR_TENSOR_UNALIGNED: {
    exit: 64,
    cause: "`typed()` needs the tensor at a multiple of its element size; packed placement of this file does not give that.",
    remedy: 'Load with `placement: "auto"` or `"aligned"`, or use `bytes()`.',
  },
  ERR_TENSOR_RELEASED: {
    exit: 70,
    cause: "A tensor's bytes were asked for after its model was closed, or after a stream went on.",
    remedy: "Copy what is needed before.",
  },
  ERR_NATIVE_UNSUPPORTED_PLATFORM: {
    exit: 69,
    cause: "There is no native addon for this operating system or processor.",
    remedy: "Use Linux on x64 (arm64: build from source).",
  },
  ERR_NATIVE_MISSING: {
    exit: 69,
    cause: "The native addon is not where it should be.",
    remedy: "In a clone run `npm run build`; else install the package again.",
  },
  ERR_NATIVE_LOAD: {
    exit: 69,
    cause: "The native addon is there, and the system refuses to load it.",
    remedy: "The message has the loader's words (a C library too old, a wrong processor).",
  },
  ERR_NATIVE_NODE_API: {
    exit: 69,
    cause: "This Node version is too old for the addon.",
    remedy: "Use Node 20 or newer.",
  },
  ERR_NATIVE_VERSION: {
    exit: 69,
    cause: "The native addon is of another version than the JavaScript around it.",
    remedy: "Build or install the package again.",
  },
  ERR_VERIFY_MISMATCH: {
    exit: 65,
    cause: "A file's SHA-256 is not the expected one.",
    remedy: "Download the file again.",
  },
  ERR_VERIFY_SUMS_INVALID: {
    exit: 65,
    cause: "A SHA256SUMS file has a line that is not a digest and a file name.",
    remedy: "Write it again with `sha256sum`.",
  },
  ERR_SAMPLE_EXISTS: {
    exit: 64,
    cause: "The folder for a sample holds weights already.",
    remedy: "Give another folder, or `--force` (option `force`).",
  },
  ERR_SAMPLE_NO_SPACE: {
    exit: 74,
    cause: "The disk has not enough room for the sample.",
    remedy: "Free some, or ask for fewer bytes.",
  },
  ERR_SAMPLE_WRITE: {
    exit: 74,
    cause: "A file or folder of the sample could not be made or written.",
    remedy: "See the errno; check permissions and the disk.",
  },
  ERR_INTERNAL: {
    exit: 70,
    cause: "A fault of this package.",
    remedy: "Please report it, with the message.",
  },
} as const satisfies Record<string, ErrorCodeEntry>;

export type ErrorCode = keyof typeof errorCodes;
