/* Primary contexts, and which context is current on a thread. */
#include "../core/stream.h"
#include "entry.h"

MX_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  ENTER(cuDevicePrimaryCtxRetain);
  REFUSE_IF(!context, CUDA_ERROR_INVALID_VALUE);
  return LEAVE(mx_primary_retain(context, device));
}

MX_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  ENTER(cuDevicePrimaryCtxRelease_v2);
  return LEAVE(mx_primary_release(device));
}

MX_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
  ENTER(cuDevicePrimaryCtxGetState);
  CUresult status = mx_check_device(device);
  REFUSE_IF(status, status);
  REFUSE_IF(!flags || !active, CUDA_ERROR_INVALID_VALUE);
  *flags = 0;
  *active = mx_primary_active(device);
  return LEAVE(CUDA_SUCCESS);
}

MX_EXPORT CUresult cuCtxGetCurrent(CUcontext *context) {
  ENTER_INITIALISED(cuCtxGetCurrent);
  REFUSE_IF(!context, CUDA_ERROR_INVALID_VALUE);
  *context = mx_current();
  return LEAVE(CUDA_SUCCESS);
}

static CUresult usable(CUcontext context) {
  if (!mx_context_known(context)) return CUDA_ERROR_INVALID_CONTEXT;
  return context->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/* NULL empties the top of the stack. */
MX_EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
  ENTER_INITIALISED(cuCtxSetCurrent);
  CUresult status = context ? usable(context) : CUDA_SUCCESS;
  REFUSE_IF(status, status);
  mx_set_current(context);
  return LEAVE(CUDA_SUCCESS);
}

MX_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) {
  ENTER_INITIALISED(cuCtxPushCurrent_v2);
  CUresult status = usable(context);
  REFUSE_IF(status, status);
  return LEAVE(mx_push_current(context));
}

MX_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *popped) {
  ENTER_INITIALISED(cuCtxPopCurrent_v2);
  CUcontext top;
  CUresult status = mx_pop_current(&top);
  if (!status && popped) *popped = top;
  return LEAVE(status);
}

MX_EXPORT CUresult cuCtxGetDevice(CUdevice *device) {
  ENTER_WITH_CONTEXT(cuCtxGetDevice);
  REFUSE_IF(!device, CUDA_ERROR_INVALID_VALUE);
  *device = context->device;
  return LEAVE(CUDA_SUCCESS);
}

MX_EXPORT CUresult cuCtxGetFlags(unsigned *flags) {
  ENTER_WITH_CONTEXT(cuCtxGetFlags);
  REFUSE_IF(!flags, CUDA_ERROR_INVALID_VALUE);
  *flags = 0;
  return LEAVE(CUDA_SUCCESS);
}

MX_EXPORT CUresult cuCtxSetFlags(unsigned flags) {
  ENTER_WITH_CONTEXT(cuCtxSetFlags);
  (void)flags;
  return LEAVE(CUDA_SUCCESS);
}

MX_EXPORT CUresult cuCtxGetId(CUcontext asked, unsigned long long *id) {
  ENTER_INITIALISED(cuCtxGetId);
  CUcontext context = asked ? asked : mx_current();
  REFUSE_IF(!id, CUDA_ERROR_INVALID_VALUE);
  CUresult status = usable(context);
  REFUSE_IF(status, status);
  *id = context->id;
  return LEAVE(CUDA_SUCCESS);
}

MX_EXPORT CUresult cuCtxSynchronize(void) {
  ENTER_WITH_CONTEXT(cuCtxSynchronize);
  mx_streams_drain(context);
  return LEAVE(CUDA_SUCCESS);
}
