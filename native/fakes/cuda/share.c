/* Handles to memory: by address, for another process, as dma-buf. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../core/memory.h"
#include "../core/plan.h"
#include "entry.h"

MX_EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
  ENTER_WITH_CONTEXT(cuMemRetainAllocationHandle);
  struct mx_mapping *mapping = mx_mapping_at((uintptr_t)address);
  REFUSE_IF(!handle || !mapping || mapping->plain, CUDA_ERROR_INVALID_VALUE);
  mx_physical_retain(mapping->physical);
  *handle = mapping->physical->handle;
  return LEAVE(CUDA_SUCCESS);
}

MX_EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties, CUmemGenericAllocationHandle handle) {
  ENTER_WITH_CONTEXT(cuMemGetAllocationPropertiesFromHandle);
  struct mx_physical *physical = mx_physical_of(handle);
  REFUSE_IF(!properties || !physical, CUDA_ERROR_INVALID_VALUE);
  *properties = (CUmemAllocationProp){
      .type = CU_MEM_ALLOCATION_TYPE_PINNED,
      .requestedHandleTypes = (int)physical->handle_types,
      .location = {CU_MEM_LOCATION_TYPE_DEVICE, physical->device},
      .allocFlags = {.gpuDirectRDMACapable = physical->rdma},
  };
  return LEAVE(CUDA_SUCCESS);
}

MX_EXPORT CUresult cuMemExportToShareableHandle(void *shared, CUmemGenericAllocationHandle handle, int type, unsigned long long flags) {
  ENTER_WITH_CONTEXT(cuMemExportToShareableHandle);
  struct mx_physical *physical = mx_physical_of(handle);
  REFUSE_IF(!shared || !physical || flags || !type || (physical->handle_types & (unsigned)type) != (unsigned)type, CUDA_ERROR_INVALID_VALUE);
  REFUSE_IF(type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CUDA_ERROR_NOT_SUPPORTED);
  int fd = fcntl(physical->fd, F_DUPFD_CLOEXEC, 0);
  REFUSE_IF(fd < 0, CUDA_ERROR_OPERATING_SYSTEM);
  *(int *)shared = fd;
  return LEAVE(CUDA_SUCCESS);
}

/* The descriptor comes by value in the pointer's place; it stays the caller's to close. */
MX_EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shared, int type) {
  ENTER_WITH_CONTEXT(cuMemImportFromShareableHandle);
  REFUSE_IF(!handle, CUDA_ERROR_INVALID_VALUE);
  REFUSE_IF(type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CUDA_ERROR_NOT_SUPPORTED);
  struct mx_physical *made;
  CUresult status = mx_physical_import(&made, (int)(intptr_t)shared);
  if (!status) *handle = made->handle;
  return LEAVE(status);
}

/* How many handles back [address, address + size); 0 where a part is not mapped, unless holes are allowed. Without its RDMA flag memory cannot be exported. */
static int handles_behind(CUdeviceptr address, size_t size, int *fd, bool *rdma) {
  int count = 0;
  for (CUdeviceptr at = address; at < address + size;) {
    struct mx_mapping *mapping = mx_mapping_at(at);
    if (!mapping && mx_settings.dmabuf == MX_DMABUF_HOLES) {
      at += 4096;
      continue;
    }
    if (!mapping) return 0;
    if (!count) *fd = mapping->physical->fd;
    *rdma = (count == 0 || *rdma) && mapping->physical->rdma;
    at = mapping->address + (mapping->plain ? mapping->physical->size : mapping->size);
    count++;
  }
  return count;
}

MX_EXPORT CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr address, size_t size, int type, unsigned long long flags) {
  ENTER_WITH_CONTEXT(cuMemGetHandleForAddressRange);
  mx_facts(&call, "address=0x%llx size=%zu", address, size);
  REFUSE_IF(!handle || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags > 1, CUDA_ERROR_INVALID_VALUE);
  REFUSE_IF(!size || address % 4096 || size % 4096, CUDA_ERROR_INVALID_VALUE);
  REFUSE_IF(mx_settings.dmabuf == MX_DMABUF_NONE, CUDA_ERROR_NOT_SUPPORTED);
  int behind = -1;
  bool rdma = false;
  int count = handles_behind(address, size, &behind, &rdma);
  REFUSE_IF(!count || (count > 1 && mx_settings.dmabuf != MX_DMABUF_ANY && mx_settings.dmabuf != MX_DMABUF_HOLES), CUDA_ERROR_INVALID_VALUE);
  REFUSE_IF(!rdma, CUDA_ERROR_NOT_SUPPORTED);
  /* A range over several handles has no one memory file behind it: what is given stands for it only. */
  int fd = count == 1 ? fcntl(behind, F_DUPFD_CLOEXEC, 0) : memfd_create("mx-fake-range", MFD_CLOEXEC);
  REFUSE_IF(fd < 0, CUDA_ERROR_OPERATING_SYSTEM);
  *(int *)handle = fd;
  return LEAVE(CUDA_SUCCESS);
}
