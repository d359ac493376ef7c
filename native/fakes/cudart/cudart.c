/* The CUDA runtime, as far as NIXL's plugins use it: it makes each device's primary context current by itself, as the real one does. */
#include <string.h>

#include "../core/call.h"
#include "../core/context.h"
#include "../core/host.h"
#include "../core/memory.h"
#include "../core/plan.h"
#include "../core/statuses.h"
#include "../core/stream.h"

typedef CUresult cudaError; /* the numbers are the same, save for the names */

enum { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault };
enum { cudaErrorInvalidMemcpyDirection = 21, cudaErrorInvalidSymbol = 13 };
enum { RUNTIME_VERSION = 12090 };

static _Thread_local int device;
static _Thread_local cudaError last;

#define ENTER(name) \
  struct mx_call call; \
  if (mx_enter(&call, F_##name)) return leave(&call, call.planned)

/* Besides, a context is current: the one that the program set by the driver, else the primary one of the thread's device. */
#define ENTER_ON_DEVICE(name) \
  ENTER(name); \
  cudaError unusable = mx_current() && mx_current()->alive ? CUDA_SUCCESS : use_device(device); \
  if (unusable) return leave(&call, unusable)

#define LEAVE(status) leave(&call, (status))

static cudaError leave(struct mx_call *call, long status) {
  if (status) last = (cudaError)status;
  return (cudaError)mx_leave(call, status);
}

static cudaError use_device(int wanted) {
  CUcontext context;
  cudaError status = mx_init();
  if (!status) status = mx_primary_keep(&context, wanted);
  if (!status) mx_set_current(context);
  return status;
}

MX_EXPORT const char *cudaGetErrorName(cudaError error) {
  struct mx_call call;
  mx_enter(&call, F_cudaGetErrorName);
  const struct mx_status *status = mx_status_of(MX_CUDART, error);
  mx_leave(&call, 0);
  return status ? status->name : "unrecognized error code";
}

MX_EXPORT const char *cudaGetErrorString(cudaError error) {
  struct mx_call call;
  mx_enter(&call, F_cudaGetErrorString);
  const struct mx_status *status = mx_status_of(MX_CUDART, error);
  mx_leave(&call, 0);
  return status ? status->text : "unrecognized error code";
}

MX_EXPORT cudaError cudaPeekAtLastError(void) {
  ENTER(cudaPeekAtLastError);
  mx_leave(&call, last);
  return last;
}

MX_EXPORT cudaError cudaGetLastError(void) {
  ENTER(cudaGetLastError);
  cudaError was = last;
  last = CUDA_SUCCESS;
  mx_leave(&call, was);
  return was;
}

MX_EXPORT cudaError cudaRuntimeGetVersion(int *version) {
  ENTER(cudaRuntimeGetVersion);
  if (!version) return LEAVE(CUDA_ERROR_INVALID_VALUE);
  *version = RUNTIME_VERSION;
  return LEAVE(CUDA_SUCCESS);
}

MX_EXPORT cudaError cudaDriverGetVersion(int *version) {
  ENTER(cudaDriverGetVersion);
  if (!version) return LEAVE(CUDA_ERROR_INVALID_VALUE);
  *version = RUNTIME_VERSION;
  return LEAVE(CUDA_SUCCESS);
}

MX_EXPORT cudaError cudaGetDeviceCount(int *count) {
  ENTER(cudaGetDeviceCount);
  if (!count) return LEAVE(CUDA_ERROR_INVALID_VALUE);
  *count = (int)mx_settings.devices;
  return LEAVE(*count ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE);
}

MX_EXPORT cudaError cudaGetDevice(int *current) {
  ENTER(cudaGetDevice);
  if (!current) return LEAVE(CUDA_ERROR_INVALID_VALUE);
  *current = mx_current() ? mx_current()->device : device;
  return LEAVE(CUDA_SUCCESS);
}

MX_EXPORT cudaError cudaSetDevice(int wanted) {
  ENTER(cudaSetDevice);
  mx_facts(&call, "device=%d", wanted);
  cudaError status = use_device(wanted);
  if (!status) device = wanted;
  return LEAVE(status);
}

MX_EXPORT cudaError cudaDeviceSynchronize(void) {
  ENTER_ON_DEVICE(cudaDeviceSynchronize);
  mx_streams_drain(mx_current());
  return LEAVE(CUDA_SUCCESS);
}

MX_EXPORT cudaError cudaMalloc(void **address, size_t size) {
  ENTER_ON_DEVICE(cudaMalloc);
  CUdeviceptr made = 0;
  if (!address) return LEAVE(CUDA_ERROR_INVALID_VALUE);
  cudaError status = size ? mx_allocate(&made, size, mx_current()->device, mx_current()) : CUDA_SUCCESS;
  if (!status) *address = (void *)(uintptr_t)made;
  return LEAVE(status);
}

MX_EXPORT cudaError cudaFree(void *address) {
  ENTER_ON_DEVICE(cudaFree);
  return LEAVE(address ? mx_free((uintptr_t)address) : CUDA_SUCCESS);
}

MX_EXPORT cudaError cudaMallocHost(void **address, size_t size) {
  ENTER_ON_DEVICE(cudaMallocHost);
  return LEAVE(address ? mx_host_allocate(address, size, mx_current()) : CUDA_ERROR_INVALID_VALUE);
}

MX_EXPORT cudaError cudaHostAlloc(void **address, size_t size, unsigned flags) {
  ENTER_ON_DEVICE(cudaHostAlloc);
  return LEAVE(address && flags <= 7 ? mx_host_allocate(address, size, mx_current()) : CUDA_ERROR_INVALID_VALUE);
}

MX_EXPORT cudaError cudaFreeHost(void *address) {
  ENTER_ON_DEVICE(cudaFreeHost);
  return LEAVE(address ? mx_host_free(address) : CUDA_SUCCESS);
}

MX_EXPORT cudaError cudaHostRegister(void *address, size_t size, unsigned flags) {
  ENTER_ON_DEVICE(cudaHostRegister);
  return LEAVE(flags <= 15 ? mx_host_register(address, size, mx_current()) : CUDA_ERROR_INVALID_VALUE);
}

MX_EXPORT cudaError cudaHostUnregister(void *address) {
  ENTER_ON_DEVICE(cudaHostUnregister);
  return LEAVE(mx_host_unregister(address));
}

/* Both sides must be what the direction says; cudaMemcpyDefault asks the addresses. */
static cudaError copy(void *to, const void *from, size_t size, int kind, CUstream stream) {
  bool to_device = mx_mapping_at((uintptr_t)to) != NULL, from_device = mx_mapping_at((uintptr_t)from) != NULL;
  if (!size) return CUDA_SUCCESS;
  if (!to || !from) return CUDA_ERROR_INVALID_VALUE;
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return (cudaError)cudaErrorInvalidMemcpyDirection;
  if (kind != cudaMemcpyDefault && kind != (from_device ? 2 : 0) + (to_device ? 1 : 0)) return CUDA_ERROR_INVALID_VALUE;
  if (to_device && !mx_reaches((uintptr_t)to, size, 2)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  if (from_device && !mx_reaches((uintptr_t)from, size, 1)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  mx_stream_copy(stream, to, from, size);
  return CUDA_SUCCESS;
}

MX_EXPORT cudaError cudaMemcpy(void *to, const void *from, size_t size, int kind) {
  ENTER_ON_DEVICE(cudaMemcpy);
  return LEAVE(copy(to, from, size, kind, NULL));
}

MX_EXPORT cudaError cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, CUstream stream) {
  ENTER_ON_DEVICE(cudaMemcpyAsync);
  if (mx_stream_check(stream)) return LEAVE(CUDA_ERROR_INVALID_HANDLE);
  return LEAVE(copy(to, from, size, kind, stream));
}

MX_EXPORT cudaError cudaMemset(void *address, int value, size_t size) {
  ENTER_ON_DEVICE(cudaMemset);
  if (!size) return LEAVE(CUDA_SUCCESS);
  if (!mx_mapping_at((uintptr_t)address)) return LEAVE(CUDA_ERROR_INVALID_VALUE);
  if (!mx_reaches((uintptr_t)address, size, 2)) return LEAVE(CUDA_ERROR_ILLEGAL_ADDRESS);
  memset(address, value, size);
  return LEAVE(CUDA_SUCCESS);
}

MX_EXPORT cudaError cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
  ENTER_ON_DEVICE(cudaMemGetInfo);
  if (!free_bytes || !total_bytes) return LEAVE(CUDA_ERROR_INVALID_VALUE);
  *free_bytes = mx_device_free_bytes(mx_current()->device);
  *total_bytes = mx_settings.device_bytes;
  return LEAVE(CUDA_SUCCESS);
}

struct cudaPointerAttributes {
  int type; /* 0 unknown to the driver, 1 host, 2 device */
  int device;
  void *devicePointer;
  void *hostPointer;
};

MX_EXPORT cudaError cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *address) {
  ENTER_ON_DEVICE(cudaPointerGetAttributes);
  if (!attributes || !address) return LEAVE(CUDA_ERROR_INVALID_VALUE);
  struct mx_mapping *mapping = mx_mapping_at((uintptr_t)address);
  struct mx_host *host = mx_host_at((uintptr_t)address);
  void *same = (void *)(uintptr_t)address;
  *attributes = (struct cudaPointerAttributes){.type = 0, .device = -2, .hostPointer = same};
  if (mapping) *attributes = (struct cudaPointerAttributes){2, mapping->physical->device, same, NULL};
  else if (host) *attributes = (struct cudaPointerAttributes){1, host->context->device, same, same};
  return LEAVE(CUDA_SUCCESS);
}

MX_EXPORT cudaError cudaStreamCreate(CUstream *stream) {
  ENTER_ON_DEVICE(cudaStreamCreate);
  return LEAVE(stream ? mx_stream_create(stream, mx_current()) : CUDA_ERROR_INVALID_VALUE);
}

MX_EXPORT cudaError cudaStreamSynchronize(CUstream stream) {
  ENTER_ON_DEVICE(cudaStreamSynchronize);
  if (mx_stream_check(stream)) return LEAVE(CUDA_ERROR_INVALID_HANDLE);
  mx_stream_drain(stream);
  return LEAVE(CUDA_SUCCESS);
}

MX_EXPORT cudaError cudaStreamQuery(CUstream stream) {
  ENTER_ON_DEVICE(cudaStreamQuery);
  if (mx_stream_check(stream)) return LEAVE(CUDA_ERROR_INVALID_HANDLE);
  return LEAVE(mx_stream_idle(stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

MX_EXPORT cudaError cudaStreamDestroy(CUstream stream) {
  ENTER_ON_DEVICE(cudaStreamDestroy);
  return LEAVE(mx_stream_destroy(stream));
}

/* There are no symbols on these devices. */
MX_EXPORT cudaError cudaGetSymbolSize(size_t *size, const void *symbol) {
  ENTER_ON_DEVICE(cudaGetSymbolSize);
  (void)size, (void)symbol;
  return LEAVE(cudaErrorInvalidSymbol);
}
