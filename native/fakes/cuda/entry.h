/* What every function of libcuda.so.1 begins with. */
#ifndef MX_FAKES_CUDA_ENTRY_H
#define MX_FAKES_CUDA_ENTRY_H

#include "../core/call.h"
#include "../core/context.h"
#include "abi.h"
#include "prototypes.h"

/* Enters the call `name`, and returns from it where a failure is planned. */
#define ENTER(name) \
  struct mx_call call; \
  if (mx_enter(&call, F_##name)) return (CUresult)mx_leave(&call, call.planned)

/* Besides, cuInit must have been called. */
#define ENTER_INITIALISED(name) \
  ENTER(name); \
  if (!mx_initialised()) return LEAVE(CUDA_ERROR_NOT_INITIALIZED)

/* Besides, the thread must have a current context that lives; it is `context` then. */
#define ENTER_WITH_CONTEXT(name) \
  ENTER(name); \
  CUcontext context; \
  CUresult missing = mx_need_context(&context); \
  if (missing) return LEAVE(missing)

#define LEAVE(status) ((CUresult)mx_leave(&call, (status)))

#define REFUSE_IF(condition, status) \
  if (condition) return LEAVE(status)

#endif
