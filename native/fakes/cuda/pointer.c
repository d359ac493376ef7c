/* What the driver knows of an address. */
#include "../core/host.h"
#include "../core/memory.h"
#include "entry.h"

static CUresult device_attribute(void *data, int attribute, CUdeviceptr address, const struct mx_mapping *mapping) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: *(CUcontext *)data = mapping->context; break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: *(unsigned *)data = CU_MEMORYTYPE_DEVICE; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *(CUdeviceptr *)data = address; break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(unsigned *)data = 0; break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: *(unsigned long long *)data = mapping->serial; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)data = mapping->physical->device; break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: *(unsigned *)data = mapping->plain; break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: *(CUdeviceptr *)data = mapping->address; break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE: *(size_t *)data = mapping->size; break;
    case CU_POINTER_ATTRIBUTE_MAPPED: *(unsigned *)data = 1; break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: *(unsigned long long *)data = mapping->physical->handle_types; break;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: *(unsigned *)data = mapping->physical->rdma; break;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: *(unsigned *)data = mapping->access; break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: *(void **)data = NULL; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

static CUresult host_attribute(void *data, int attribute, CUdeviceptr address, const struct mx_host *host) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: *(CUcontext *)data = host->context; break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: *(unsigned *)data = CU_MEMORYTYPE_HOST; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *(CUdeviceptr *)data = address; break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER: *(void **)data = (void *)(uintptr_t)address; break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(unsigned *)data = 0; break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: *(unsigned long long *)data = host->serial; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)data = host->context->device; break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(CUdeviceptr *)data = host->address; break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)data = host->size; break;
    case CU_POINTER_ATTRIBUTE_MAPPED: *(unsigned *)data = 1; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

static CUresult get(void *data, int attribute, CUdeviceptr address) {
  struct mx_mapping *mapping = mx_mapping_at(address);
  struct mx_host *host = mx_host_at(address);
  if (!data) return CUDA_ERROR_INVALID_VALUE;
  if (mapping) return device_attribute(data, attribute, address, mapping);
  return host ? host_attribute(data, attribute, address, host) : CUDA_ERROR_INVALID_VALUE;
}

MX_EXPORT CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr address) {
  ENTER_INITIALISED(cuPointerGetAttribute);
  return LEAVE(get(data, attribute, address));
}

static size_t attribute_bytes(int attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: return 8;
    default: return 4;
  }
}

/* An address that the driver does not know answers zeros, and -2 as its device. */
MX_EXPORT CUresult cuPointerGetAttributes(unsigned count, const int *attributes, void **data, CUdeviceptr address) {
  ENTER_INITIALISED(cuPointerGetAttributes);
  REFUSE_IF(!attributes || !data || !count, CUDA_ERROR_INVALID_VALUE);
  for (unsigned at = 0; at < count; at++) {
    REFUSE_IF(!data[at], CUDA_ERROR_INVALID_VALUE);
    if (get(data[at], attributes[at], address) == CUDA_SUCCESS) continue;
    __builtin_memset(data[at], 0, attribute_bytes(attributes[at]));
    if (attributes[at] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) *(int *)data[at] = -2;
  }
  return LEAVE(CUDA_SUCCESS);
}

MX_EXPORT CUresult cuPointerSetAttribute(const void *value, int attribute, CUdeviceptr address) {
  ENTER_INITIALISED(cuPointerSetAttribute);
  REFUSE_IF(!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !mx_mapping_at(address), CUDA_ERROR_INVALID_VALUE);
  return LEAVE(CUDA_SUCCESS);
}
