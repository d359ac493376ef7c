/* What UCX's CUDA modules link to and these devices do not offer: legacy IPC, managed memory, memory pools. */
#include "entry.h"

#define UNSUPPORTED(name) \
  MX_EXPORT CUresult name(void) { \
    ENTER_INITIALISED(name); \
    return LEAVE(CUDA_ERROR_NOT_SUPPORTED); \
  }

UNSUPPORTED(cuIpcGetMemHandle)
UNSUPPORTED(cuIpcOpenMemHandle_v2)
UNSUPPORTED(cuIpcCloseMemHandle)
UNSUPPORTED(cuMemAllocManaged)
UNSUPPORTED(cuMemRangeGetAttribute)
UNSUPPORTED(cuMemPoolDestroy)
UNSUPPORTED(cuMemPoolExportPointer)
UNSUPPORTED(cuMemPoolExportToShareableHandle)
UNSUPPORTED(cuMemPoolImportFromShareableHandle)
UNSUPPORTED(cuMemPoolImportPointer)
UNSUPPORTED(cuMemPoolSetAccess)
