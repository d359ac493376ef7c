/* Registered buffers, and what memory cuFile takes. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>

#include "../core/context.h"
#include "../core/memory.h"
#include "../core/plan.h"
#include "state.h"

static struct mx_buffer *buffers;
static size_t registered_bytes;

struct mx_buffer *mx_buffer_at(uint64_t base) {
  for (struct mx_buffer *at = buffers; at; at = at->next)
    if (at->base == base) return at;
  return NULL;
}

static bool host_pages(uint64_t address, size_t size) {
  uint64_t begin = address / 4096 * 4096, pages = (address + size - begin + 4095) / 4096;
  unsigned char *seen = malloc(pages);
  bool all = mincore((void *)(uintptr_t)begin, pages * 4096, seen) == 0;
  free(seen);
  return all;
}

int mx_check_memory(uint64_t address, size_t size, unsigned access) {
  if (!mx_mapping_at(address)) return !mx_reserved(address) && host_pages(address, size) ? CU_FILE_SUCCESS : CU_FILE_CUDA_POINTER_INVALID;
  if (mx_reaches(address, size, access)) return CU_FILE_SUCCESS;
  return mx_reaches(address, size, 0) ? CU_FILE_PERMISSION_DENIED : CU_FILE_CUDA_POINTER_RANGE_ERROR;
}

MX_EXPORT CUfileError_t cuFileBufRegister(const void *pointer, size_t size, int flags) {
  ENTER(cuFileBufRegister);
  uint64_t base = (uintptr_t)pointer;
  mx_facts(&call, "base=0x%llx size=%zu", (unsigned long long)base, size);
  REFUSE_IF(!base || !size || flags & ~1, CU_FILE_INVALID_VALUE);
  mx_cufile_open_driver();
  REFUSE_IF(mx_buffer_at(base), CU_FILE_MEMORY_ALREADY_REGISTERED);
  int status = mx_check_memory(base, size, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  REFUSE_IF(status, status);
  struct mx_mapping *mapping = mx_mapping_at(base);
  CUcontext context;
  REFUSE_IF(mapping && mx_need_context(&context), CU_FILE_CUDA_DRIVER_ERROR);
  /* Pages are pinned through one allocation, which must allow it. */
  REFUSE_IF(mapping && base + size > mapping->address + mapping->size, CU_FILE_CUDA_POINTER_RANGE_ERROR);
  REFUSE_IF(mapping && !mapping->physical->rdma, CU_FILE_GPU_MEMORY_PINNING_FAILED);
  REFUSE_IF(mapping && size > mx_settings.registered_bytes - registered_bytes, CU_FILE_INVALID_MAPPING_SIZE);
  struct mx_buffer *made = malloc(sizeof *made);
  *made = (struct mx_buffer){.next = buffers, .base = base, .size = size};
  made->held = mx_hold(MX_REGISTERED, base, size, "is registered with cuFile");
  buffers = made;
  registered_bytes += size;
  mx_opened("cufile-buffer", base, size);
  return LEAVE(CU_FILE_SUCCESS);
}

MX_EXPORT CUfileError_t cuFileBufDeregister(const void *pointer) {
  ENTER(cuFileBufDeregister);
  uint64_t base = (uintptr_t)pointer;
  mx_facts(&call, "base=0x%llx", (unsigned long long)base);
  struct mx_buffer **at = &buffers;
  while (*at && (*at)->base != base) at = &(*at)->next;
  struct mx_buffer *found = *at;
  REFUSE_IF(!found, CU_FILE_MEMORY_NOT_REGISTERED);
  mx_must_be_still("deregisters", base, found->size);
  mx_let_go(found->held);
  *at = found->next;
  registered_bytes -= found->size;
  mx_closed("cufile-buffer", base);
  free(found);
  return LEAVE(CU_FILE_SUCCESS);
}
