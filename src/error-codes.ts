/**
 * What the documentation says of one error code, and the exit code that `mx` ends with
 * (sysexits.h).
 */
export interface ErrorCodeEntry {
  readonly exit: 64 | 65 | 66 | 69 | 70 | 74 | 75;
  readonly cause: string;
  readonly remedy: string;
}

/**
 * Every error code of the package, in the order of its layers. `docs/errors.md` is generated from
 * this table.
 */
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
  ERR_CHECKPOINT_DOWNLOAD_UNFINISHED: {
    exit: 66,
    cause: "A downloader's left-over tells that a file is still being downloaded, or that its download was broken off.",
    remedy: "Finish the download as the message says; remove the left-over it names if the file is complete all the same.",
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
    cause: "The load needs more memory than is available (MemAvailable, a control group's limit, what is free of a device).",
    remedy:
      'Load fewer tensors (`include`), use the `map` driver, or a larger machine or limit. Where the host frees memory that it does not tell of, such as ZFS\'s cache, `memoryCheck: "ignore"` (`--ignore-memory`).',
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
    cause: "The operating system refused memory: for the arena, for a copy of device memory, or for what a load keeps of a checkpoint.",
    remedy: "Free memory, raise the limit, or load less.",
  },
  ERR_ARENA_CLOSED: {
    exit: 70,
    cause: "`malloc` or a load was asked of an arena after `close()`.",
    remedy: "Make a new arena.",
  },
  ERR_ARENA_BUSY: {
    exit: 70,
    cause:
      "`free` or `close` over memory that a transfer still uses or that is registered with NIXL; `close` while memory is allocated on another thread; either, over a backend written in JavaScript, where a view's memory was moved into another buffer.",
    remedy:
      "Await the load, or the `settled` promise of its error, close the registration, end the calls of other threads (`setActiveArena(null)`), or let go of the other buffer, first.",
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
    cause:
      "A load or a view was asked of an arena whose backend does not say that its memory can be written by the host, or is that of a device cuda:N.",
    remedy: "Use `hostBackend()` or `cudaBackend()`, or declare `memory` and `device` on the backend.",
  },
  ERR_ARENA_RELEASE_FAILED: {
    exit: 74,
    cause: "The operating system failed to give memory or address space back.",
    remedy: "See the errno; the arena counts as closed.",
  },
  ERR_ARENA_DEVICE: {
    exit: 64,
    cause: "A caller from C asked the active arena for memory of another device than the arena's.",
    remedy: "Make an arena over that device the active one.",
  },
  ERR_ARENA_ACTIVE: {
    exit: 70,
    cause: "`setActiveArena` was called while another arena is active that is open.",
    remedy: "Call `setActiveArena(null)` first, once no caller from C allocates in the other any more.",
  },
  ERR_CUDA_LIBRARY: {
    exit: 69,
    cause: "There is no CUDA driver library (`libcuda.so.1`), or the loader refuses it.",
    remedy: "Install NVIDIA's driver, run the container with `--gpus`, or name the library with `MX_CUDA_LIBRARY`.",
  },
  ERR_CUDA_SYMBOLS: {
    exit: 69,
    cause: "The CUDA driver library lacks functions that are needed: it is too old, or something else.",
    remedy: "Install a driver for CUDA 11.7 or newer; the message names what is missing.",
  },
  ERR_CUDA_NOT_INITIALIZED: {
    exit: 69,
    cause: "`cuInit` failed: there is no device, or library and kernel module are of different versions.",
    remedy: "See what `nvidia-smi` says.",
  },
  ERR_CUDA_DEVICE: {
    exit: 64,
    cause: "There is no CUDA device of that number, or it has no virtual memory management.",
    remedy: "Name one that the driver has; CUDA_VISIBLE_DEVICES and the container decide which are seen.",
  },
  ERR_CUDA_NO_CONTEXT: {
    exit: 69,
    cause: "The device's primary context could not be had, or not be made current on a thread.",
    remedy: "See the status; free memory of the device where it is CUDA_ERROR_OUT_OF_MEMORY.",
  },
  ERR_CUDA_RESERVE_REFUSED: {
    exit: 69,
    cause: "The CUDA driver refused to reserve the address space (WSL2, a virtual GPU, `ulimit -v`).",
    remedy: "Ask for less with `totalBytes`.",
  },
  ERR_CUDA_OUT_OF_MEMORY: {
    exit: 69,
    cause: "The device has not enough free memory.",
    remedy: "Load less, use another device, or end what uses its memory (`nvidia-smi`).",
  },
  ERR_CUDA_ALLOCATE: {
    exit: 74,
    cause: "The CUDA driver failed to create, map or open memory for an allocation; what was done before is undone.",
    remedy: "See operation and status.",
  },
  ERR_CUDA_RELEASE: {
    exit: 74,
    cause: "The CUDA driver failed to give memory, address space, a stream or an event back.",
    remedy: "See operation and status; an arena counts as closed.",
  },
  ERR_CUDA_REGION: {
    exit: 69,
    cause:
      "The CUDA driver cannot give a network card a range of device memory as one region: it spans several allocations, or dmabuf is not to be had here.",
    remedy: "Register allocation by allocation; see operation and status.",
  },
  ERR_CUDA_PIN: {
    exit: 69,
    cause: "The CUDA driver refused to pin host memory that files are read into on their way to a device.",
    remedy: "Free memory of the host; see operation and status.",
  },
  ERR_CUDA_COPY: {
    exit: 74,
    cause: "The CUDA driver failed to copy bytes from host memory to a device.",
    remedy: "See operation and status, and what `dmesg` says of the device.",
  },
  ERR_CUDA_CALL: {
    exit: 74,
    cause: "The CUDA driver failed to answer a question.",
    remedy: "See operation and status.",
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
    cause:
      "Reads were still in flight `closeTimeoutMs` after an abort, or a digest, copy or borrow after `close()`; their memory cannot be given back yet.",
    remedy: "Look at the storage; end what was borrowed, and close again. The process can exit all the same.",
  },
  ERR_TRANSFER_IO_URING_REFUSED: {
    exit: 69,
    cause:
      "The driver `io_uring` was asked for by name, and the kernel or the container refuses io_uring, or has no descriptor or memory for its ring.",
    remedy:
      "Use the driver `auto` or `pread`, or do what the message says: allow io_uring (seccomp profile, kernel.io_uring_disabled), or raise the limit.",
  },
  ERR_TRANSFER_IO_URING_UNSOUND: {
    exit: 69,
    cause:
      "The driver `io_uring` was asked for by name, and direct reads by io_uring are not known to be sound on the file system: on FUSE the kernel may report a whole read over wrong bytes.",
    remedy: "Use the driver `auto`, which reads such files directly by threads, or `pread`.",
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
  ERR_ABORTED: {
    exit: 75,
    cause: "The call's AbortSignal aborted, or its `onProgress` threw. The reason, or what was thrown, is the error's `cause`.",
    remedy: "None needed where the abort was meant; the memory is free again once the error's `settled` resolves.",
  },
  ERR_TRANSFER_ABORTED: {
    exit: 75,
    cause: "A transfer was stopped because the model or stream it fills was closed.",
    remedy: "None needed: it follows from a close.",
  },
  ERR_TENSOR_UNKNOWN: {
    exit: 64,
    cause: "`requireTensor()` was asked for a name that the checkpoint, or what was loaded of it, does not have.",
    remedy: "The message and `near` say which names are close; see all with `mx inspect PATH --tensors`.",
  },
  ERR_TENSOR_DTYPE: {
    exit: 64,
    cause: "`typed(dtype)` was asked for another dtype than the tensor has.",
    remedy: "Ask for the dtype that the message names, or for `typed()`, whose array fits any.",
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
  ERR_TENSOR_ON_DEVICE: {
    exit: 64,
    cause: "The bytes of a tensor in the memory of a device were asked for as a view, which JavaScript cannot have.",
    remedy: "Take a copy with `copyToHost()`, or pass its `address` to what runs on the device.",
  },
  ERR_TENSOR_RELEASED: {
    exit: 70,
    cause: "A tensor's bytes were asked for after its model was closed, or after a stream went on or ended.",
    remedy: "Copy what is needed before.",
  },
  ERR_NATIVE_UNSUPPORTED_PLATFORM: {
    exit: 69,
    cause: "There is no native addon for this operating system or processor.",
    remedy: "Use Linux on x64 or arm64.",
  },
  ERR_NATIVE_MISSING: {
    exit: 69,
    cause: "The native addon is not there: the package for this platform was not installed, or a clone was not built.",
    remedy: "Install the package that the message names, with optional dependencies on; in a clone run `npm run build`.",
  },
  ERR_NATIVE_BUNDLED: {
    exit: 69,
    cause: "A bundler put the JavaScript of the package into another file, and the native addon cannot be found from there.",
    remedy:
      "Keep `modelexpress-client` external (esbuild: `--external:modelexpress-client`), copy the addon beside the bundle, or set MX_NATIVE_ADDON.",
  },
  ERR_NATIVE_LOAD: {
    exit: 69,
    cause: "The native addon is there, and the system refuses to load it.",
    remedy: "The message has the loader's words: a C library older than glibc 2.28 or musl 1.2.5, another C library, a wrong processor.",
  },
  ERR_NATIVE_NODE_API: {
    exit: 69,
    cause: "This Node version is too old for the addon.",
    remedy: "Use Node 20.3 or newer.",
  },
  ERR_NATIVE_VERSION: {
    exit: 69,
    cause: "The native addon is of another version than the JavaScript around it.",
    remedy: "Build or install the package again.",
  },
  ERR_NIXL_NOT_FOUND: {
    exit: 69,
    cause: "NIXL's library `libnixl_capi.so` could not be loaded from any of the places in `tried`.",
    remedy: 'Install it, or give its path with the option `library` or MX_NIXL_LIBRARY. Read on: `mx probe`, and "On a GPU" in the README.',
  },
  ERR_NIXL_LOAD: {
    exit: 69,
    cause: "The dynamic loader refuses NIXL's library.",
    remedy: "Name NIXL's `libnixl_capi.so`, or install what the message says is missing. `mx probe` tells where NIXL is looked for.",
  },
  ERR_NIXL_SYMBOLS: {
    exit: 69,
    cause: "NIXL's library is of a version that lacks functions this package needs.",
    remedy: "Install NIXL 1.0 or newer.",
  },
  ERR_NIXL_STUB: {
    exit: 69,
    cause: "The library found is the stub of NIXL's Rust bindings.",
    remedy: "Install NIXL itself.",
  },
  ERR_NIXL_AGENT: {
    exit: 69,
    cause: "NIXL could not make an agent, for example because its listening port is taken.",
    remedy: "See NIXL's log on stderr.",
  },
  ERR_NIXL_PLUGIN: {
    exit: 69,
    cause: "A NIXL plugin is missing, or could not be loaded or started; GDS_MT needs `libcufile.so.0` and `libcudart`.",
    remedy: "Install what the plugin needs, or use one that the message lists.",
  },
  ERR_NIXL_METADATA: {
    exit: 74,
    cause: "An agent's metadata could not be exported, or another's could not be loaded or forgotten.",
    remedy: "Pass the bytes of `exportMetadata()` unchanged, from an agent with a common plugin.",
  },
  ERR_NIXL_REGISTER: {
    exit: 74,
    cause: "A plugin refused to register memory or a file, for example a file system that cuFile does not support.",
    remedy: "See NIXL's log on stderr; use another plugin or driver.",
  },
  ERR_NIXL_DEREGISTER: {
    exit: 74,
    cause: "A plugin failed to undo a registration; its memory stays held until the agent ends.",
    remedy: "See NIXL's log on stderr.",
  },
  ERR_NIXL_TRANSFER: {
    exit: 74,
    cause: "NIXL refused a transfer, or a plugin failed in it; plugin, file and range are in the error.",
    remedy: "See NIXL's log on stderr; check the disk, the mount, or the other agent.",
  },
  ERR_NIXL_RELEASE: {
    exit: 74,
    cause: "NIXL failed to release a transfer that had ended.",
    remedy: "See NIXL's log on stderr.",
  },
  ERR_NIXL_NOT_REGISTERED: {
    exit: 70,
    cause: "A transfer was to move memory that none of its registrations covers, such as what was allocated after `arena.register()`.",
    remedy: "Register the arena again, and pass the new registration; `registration.covers(address, bytes)` tells.",
  },
  ERR_NIXL_BUSY: {
    exit: 70,
    cause: "A registration or transfer was to be given back while it is in use, or a transfer was posted twice.",
    remedy: "Await the transfer and release it first.",
  },
  ERR_NIXL_BROKEN: {
    exit: 75,
    cause: "A transfer of this agent failed in a plugin that leaves its other reads running (POSIX); only the end of the agent ends them.",
    remedy: "Close the agent and make a new one.",
  },
  ERR_NIXL_CLOSED: {
    exit: 70,
    cause: "An agent was used after `close()`.",
    remedy: "Make a new agent.",
  },
  ERR_NIXL_CLOSE: {
    exit: 74,
    cause: "A plugin or an agent could not be ended.",
    remedy: "See NIXL's log on stderr.",
  },
  ERR_GDS_NOT_INITIALIZED: {
    exit: 70,
    cause: "A GdsTransferManager was used before `initialize()` or after `shutdown()`.",
    remedy: "Await `initialize()`, or make it with `GdsTransferManager.create()`.",
  },
  ERR_GDS_PAST_END: {
    exit: 64,
    cause: "A range asked of a file lies beyond its end.",
    remedy: "Stay within the file's bytes; the message has the range and the size.",
  },
  ERR_GDS_REGISTRATION_LIMIT: {
    exit: 69,
    cause: '`registration: "whole"` needs more registered bytes than cuFile allows (`max_device_pinned_mem_size_kb`).',
    remedy: 'Use `registration: "chunks"`, or raise the limit in cufile.json.',
  },
  ERR_VERIFY_MISMATCH: {
    exit: 65,
    cause: "A file's digest is not the expected one, or the expected ones contradict each other.",
    remedy: "Download the file again.",
  },
  ERR_VERIFY_MISSING: {
    exit: 65,
    cause: "A list of digests names weights that are not in the folder.",
    remedy: "Download them. If they are left out on purpose, pass `--ignore-missing`, or name the weights with `--weights`.",
  },
  ERR_VERIFY_UNVERIFIED: {
    exit: 65,
    cause: "`--require` was given, and a file has no digest that it can be checked against.",
    remedy: "Put the publisher's list of digests beside it, such as SHA256SUMS.",
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
