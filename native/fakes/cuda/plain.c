/* Plain device memory, and pinned or registered host memory. */
#include "../core/host.h"
#include "../core/memory.h"
#include "../core/plan.h"
#include "entry.h"

MX_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size) {
  ENTER_WITH_CONTEXT(cuMemAlloc_v2);
  mx_facts(&call, "size=%zu", size);
  REFUSE_IF(!address, CUDA_ERROR_INVALID_VALUE);
  return LEAVE(mx_allocate(address, size, context->device, context));
}

/* Nothing is not freed, without complaint. */
MX_EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
  ENTER_WITH_CONTEXT(cuMemFree_v2);
  mx_facts(&call, "address=0x%llx", address);
  return LEAVE(address ? mx_free(address) : CUDA_SUCCESS);
}

MX_EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
  ENTER_WITH_CONTEXT(cuMemGetInfo_v2);
  REFUSE_IF(!free_bytes || !total_bytes, CUDA_ERROR_INVALID_VALUE);
  *free_bytes = mx_device_free_bytes(context->device);
  *total_bytes = mx_settings.device_bytes;
  return LEAVE(CUDA_SUCCESS);
}

MX_EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address) {
  ENTER_WITH_CONTEXT(cuMemGetAddressRange_v2);
  struct mx_mapping *mapping = mx_mapping_at(address);
  REFUSE_IF(!mapping, CUDA_ERROR_NOT_FOUND);
  if (base) *base = mapping->address;
  if (size) *size = mapping->size;
  return LEAVE(CUDA_SUCCESS);
}

MX_EXPORT CUresult cuMemHostAlloc(void **address, size_t size, unsigned flags) {
  ENTER_WITH_CONTEXT(cuMemHostAlloc);
  mx_facts(&call, "size=%zu", size);
  REFUSE_IF(!address || flags > 7, CUDA_ERROR_INVALID_VALUE);
  return LEAVE(mx_host_allocate(address, size, context));
}

MX_EXPORT CUresult cuMemAllocHost_v2(void **address, size_t size) {
  ENTER_WITH_CONTEXT(cuMemAllocHost_v2);
  mx_facts(&call, "size=%zu", size);
  REFUSE_IF(!address, CUDA_ERROR_INVALID_VALUE);
  return LEAVE(mx_host_allocate(address, size, context));
}

MX_EXPORT CUresult cuMemFreeHost(void *address) {
  ENTER_WITH_CONTEXT(cuMemFreeHost);
  mx_facts(&call, "address=%p", address);
  return LEAVE(mx_host_free(address));
}

MX_EXPORT CUresult cuMemHostRegister_v2(void *address, size_t size, unsigned flags) {
  ENTER_WITH_CONTEXT(cuMemHostRegister_v2);
  mx_facts(&call, "address=%p size=%zu", address, size);
  REFUSE_IF(flags > 15, CUDA_ERROR_INVALID_VALUE);
  return LEAVE(mx_host_register(address, size, context));
}

MX_EXPORT CUresult cuMemHostUnregister(void *address) {
  ENTER_WITH_CONTEXT(cuMemHostUnregister);
  mx_facts(&call, "address=%p", address);
  return LEAVE(mx_host_unregister(address));
}

MX_EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *address, unsigned flags) {
  ENTER_WITH_CONTEXT(cuMemHostGetDevicePointer_v2);
  REFUSE_IF(!device || flags || !mx_host_at((uintptr_t)address), CUDA_ERROR_INVALID_VALUE);
  *device = (uintptr_t)address;
  return LEAVE(CUDA_SUCCESS);
}
