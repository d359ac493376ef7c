/* Copies. Device memory must be mapped with access over the whole range; what the real device would fault on is ILLEGAL_ADDRESS. */
#include <string.h>

#include "../core/host.h"
#include "../core/memory.h"
#include "../core/stream.h"
#include "entry.h"

enum { READS = CU_MEM_ACCESS_FLAGS_PROT_READ, WRITES = 2 };

/* Whether the driver takes [address, address + size) on this side of a copy. */
static CUresult check_device(CUdeviceptr address, size_t size, unsigned access) {
  if (!mx_mapping_at(address)) return CUDA_ERROR_INVALID_VALUE;
  return mx_reaches(address, size, access) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

static CUresult check_host(const void *address) {
  return address && !mx_mapping_at((uintptr_t)address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static bool pinned(const void *address, size_t size) {
  struct mx_host *host = mx_host_at((uintptr_t)address);
  return host && (uintptr_t)address + size <= host->address + host->size;
}

/* A copy with pageable host memory is over when the call returns, as in the real driver. */
static void copy(CUstream stream, CUdeviceptr to, CUdeviceptr from, size_t size, bool queued) {
  if (!queued) mx_stream_drain(stream);
  mx_stream_copy(queued ? stream : NULL, (void *)(uintptr_t)to, (const void *)(uintptr_t)from, size);
}

static CUresult to_device(CUdeviceptr to, const void *from, size_t size, CUstream stream) {
  if (!size) return CUDA_SUCCESS;
  CUresult status = check_device(to, size, WRITES);
  if (!status) status = check_host(from);
  if (!status) copy(stream, to, (uintptr_t)from, size, pinned(from, size));
  return status;
}

static CUresult to_host(void *to, CUdeviceptr from, size_t size, CUstream stream) {
  if (!size) return CUDA_SUCCESS;
  CUresult status = check_device(from, size, READS);
  if (!status) status = check_host(to);
  if (!status) copy(stream, (uintptr_t)to, from, size, pinned(to, size));
  return status;
}

static CUresult on_device(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  if (!size) return CUDA_SUCCESS;
  CUresult status = check_device(to, size, WRITES);
  if (!status) status = check_device(from, size, READS);
  if (!status) copy(stream, to, from, size, true);
  return status;
}

/* The direction is inferred from the addresses. */
static CUresult anywhere(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  bool to_known = mx_mapping_at(to) != NULL, from_known = mx_mapping_at(from) != NULL;
  if (to_known && from_known) return on_device(to, from, size, stream);
  if (to_known) return to_device(to, (const void *)(uintptr_t)from, size, stream);
  if (from_known) return to_host((void *)(uintptr_t)to, from, size, stream);
  if (!to || !from) return CUDA_ERROR_INVALID_VALUE;
  copy(stream, to, from, size, false);
  return CUDA_SUCCESS;
}

#define COPY(name, to_type, from_type, how) \
  MX_EXPORT CUresult name(to_type to, from_type from, size_t size) { \
    ENTER_WITH_CONTEXT(name); \
    mx_facts(&call, "size=%zu", size); \
    return LEAVE(how(to, from, size, NULL)); \
  }

#define COPY_ASYNC(name, to_type, from_type, how) \
  MX_EXPORT CUresult name(to_type to, from_type from, size_t size, CUstream stream) { \
    ENTER_WITH_CONTEXT(name); \
    mx_facts(&call, "size=%zu", size); \
    REFUSE_IF(mx_stream_check(stream), CUDA_ERROR_INVALID_HANDLE); \
    return LEAVE(how(to, from, size, stream)); \
  }

COPY(cuMemcpy, CUdeviceptr, CUdeviceptr, anywhere)
COPY(cuMemcpyHtoD_v2, CUdeviceptr, const void *, to_device)
COPY(cuMemcpyDtoH_v2, void *, CUdeviceptr, to_host)
COPY(cuMemcpyDtoD_v2, CUdeviceptr, CUdeviceptr, on_device)
COPY_ASYNC(cuMemcpyAsync, CUdeviceptr, CUdeviceptr, anywhere)
COPY_ASYNC(cuMemcpyHtoDAsync_v2, CUdeviceptr, const void *, to_device)
COPY_ASYNC(cuMemcpyDtoHAsync_v2, void *, CUdeviceptr, to_host)
COPY_ASYNC(cuMemcpyDtoDAsync_v2, CUdeviceptr, CUdeviceptr, on_device)

MX_EXPORT CUresult cuMemsetD8_v2(CUdeviceptr address, unsigned char value, size_t size) {
  ENTER_WITH_CONTEXT(cuMemsetD8_v2);
  CUresult status = size ? check_device(address, size, WRITES) : CUDA_SUCCESS;
  if (!status && size) memset((void *)(uintptr_t)address, value, size);
  return LEAVE(status);
}
