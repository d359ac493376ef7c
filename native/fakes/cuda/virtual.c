/* Virtual memory: reserving, creating, mapping, access. */
#include "../core/memory.h"
#include "../core/plan.h"
#include "entry.h"

/* Which properties the stand-in's devices can make. */
static CUresult check_properties(const CUmemAllocationProp *properties) {
  if (!properties || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED || properties->win32HandleMetaData) return CUDA_ERROR_INVALID_VALUE;
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  if (properties->requestedHandleTypes & ~(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC)) return CUDA_ERROR_INVALID_VALUE;
  return mx_check_device(properties->location.id);
}

MX_EXPORT CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *properties, int option) {
  ENTER_INITIALISED(cuMemGetAllocationGranularity);
  CUresult status = check_properties(properties);
  REFUSE_IF(status, status);
  REFUSE_IF(!granularity || option < 0 || option > 1, CUDA_ERROR_INVALID_VALUE);
  *granularity = MX_GRANULARITY;
  return LEAVE(CUDA_SUCCESS);
}

MX_EXPORT CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr hint, unsigned long long flags) {
  ENTER_WITH_CONTEXT(cuMemAddressReserve);
  mx_facts(&call, "size=%zu", size);
  REFUSE_IF(!address || flags || hint % 4096, CUDA_ERROR_INVALID_VALUE);
  CUresult status = mx_reserve(address, size, alignment);
  if (!status) mx_facts(&call, " address=0x%llx", *address);
  return LEAVE(status);
}

MX_EXPORT CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
  ENTER_WITH_CONTEXT(cuMemAddressFree);
  mx_facts(&call, "address=0x%llx size=%zu", address, size);
  return LEAVE(mx_reserve_free(address, size));
}

MX_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *properties, unsigned long long flags) {
  ENTER_WITH_CONTEXT(cuMemCreate);
  mx_facts(&call, "size=%zu", size);
  CUresult status = check_properties(properties);
  REFUSE_IF(status, status);
  REFUSE_IF(!handle || flags || !size || size % MX_GRANULARITY, CUDA_ERROR_INVALID_VALUE);
  unsigned types = (unsigned)properties->requestedHandleTypes;
  mx_facts(&call, " device=%d types=%u rdma=%d", properties->location.id, types, properties->allocFlags.gpuDirectRDMACapable);
  if (types & CU_MEM_HANDLE_TYPE_FABRIC && mx_settings.fabric != MX_FABRIC_SUPPORTED)
    return LEAVE(mx_settings.fabric == MX_FABRIC_NOT_PERMITTED ? CUDA_ERROR_NOT_PERMITTED : CUDA_ERROR_NOT_SUPPORTED);
  struct mx_physical *made;
  status = mx_physical_create(&made, size, properties->location.id, types, properties->allocFlags.gpuDirectRDMACapable);
  REFUSE_IF(status, status);
  *handle = made->handle;
  mx_facts(&call, " handle=0x%llx", made->handle);
  return LEAVE(CUDA_SUCCESS);
}

MX_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  ENTER_WITH_CONTEXT(cuMemRelease);
  mx_facts(&call, "handle=0x%llx", handle);
  struct mx_physical *physical = mx_physical_of(handle);
  REFUSE_IF(!physical, CUDA_ERROR_INVALID_VALUE);
  mx_physical_release(physical);
  return LEAVE(CUDA_SUCCESS);
}

MX_EXPORT CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags) {
  ENTER_WITH_CONTEXT(cuMemMap);
  mx_facts(&call, "address=0x%llx size=%zu handle=0x%llx", address, size, handle);
  struct mx_physical *physical = mx_physical_of(handle);
  REFUSE_IF(!physical || offset || flags, CUDA_ERROR_INVALID_VALUE);
  return LEAVE(mx_map(address, size, physical));
}

MX_EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
  ENTER_WITH_CONTEXT(cuMemUnmap);
  mx_facts(&call, "address=0x%llx size=%zu", address, size);
  return LEAVE(mx_unmap(address, size));
}

MX_EXPORT CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *descriptions, size_t count) {
  ENTER_WITH_CONTEXT(cuMemSetAccess);
  mx_facts(&call, "address=0x%llx size=%zu", address, size);
  REFUSE_IF(!descriptions || !count, CUDA_ERROR_INVALID_VALUE);
  int flags = 0;
  for (size_t at = 0; at < count; at++) {
    const CUmemAccessDesc *one = &descriptions[at];
    REFUSE_IF(one->location.type != CU_MEM_LOCATION_TYPE_DEVICE || (one->flags != 0 && one->flags != 1 && one->flags != 3), CUDA_ERROR_INVALID_VALUE);
    CUresult status = mx_check_device(one->location.id);
    REFUSE_IF(status, status);
    flags |= one->flags;
  }
  return LEAVE(mx_set_access(address, size, (unsigned)flags));
}

MX_EXPORT CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address) {
  ENTER_WITH_CONTEXT(cuMemGetAccess);
  struct mx_mapping *mapping = mx_mapping_at(address);
  REFUSE_IF(!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE || !mapping || mapping->plain, CUDA_ERROR_INVALID_VALUE);
  CUresult status = mx_check_device(location->id);
  REFUSE_IF(status, status);
  *flags = mapping->access;
  return LEAVE(CUDA_SUCCESS);
}
