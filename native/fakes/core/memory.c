#define _GNU_SOURCE
#include "memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ledger.h"
#include "plan.h"
#include "ranges.h"

struct reservation {
  struct reservation *next;
  CUdeviceptr address;
  size_t size;
};

static struct reservation *reservations;
static struct mx_physical *physicals;
static struct mx_mapping *mappings;
static size_t used_bytes[16];
static uint64_t serial;

static bool granular(uint64_t value) { return value % MX_GRANULARITY == 0; }

static void *pointer(CUdeviceptr address) { return (void *)(uintptr_t)address; }

/* Address space without access, aligned. */
static CUresult reserve_pages(CUdeviceptr *address, size_t size, size_t alignment) {
  size_t all;
  if (__builtin_add_overflow(size, alignment, &all)) return CUDA_ERROR_OUT_OF_MEMORY;
  char *base = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  char *aligned = (char *)(((uintptr_t)base + alignment - 1) / alignment * alignment);
  if (aligned > base) munmap(base, (size_t)(aligned - base));
  size_t behind = (size_t)(base + all - (aligned + size));
  if (behind) munmap(aligned + size, behind);
  *address = (uintptr_t)aligned;
  return CUDA_SUCCESS;
}

CUresult mx_reserve(CUdeviceptr *address, size_t size, size_t alignment) {
  if (!size || !granular(size) || (alignment & (alignment - 1))) return CUDA_ERROR_INVALID_VALUE;
  if (size > mx_settings.reserve_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult status = reserve_pages(address, size, alignment > MX_GRANULARITY ? alignment : MX_GRANULARITY);
  if (status) return status;
  struct reservation *made = malloc(sizeof *made);
  *made = (struct reservation){.next = reservations, .address = *address, .size = size};
  reservations = made;
  mx_opened("reservation", *address, size);
  return CUDA_SUCCESS;
}

CUresult mx_reserve_free(CUdeviceptr address, size_t size) {
  struct reservation **at = &reservations;
  while (*at && (*at)->address != address) at = &(*at)->next;
  struct reservation *found = *at;
  if (!found || found->size != size) return CUDA_ERROR_INVALID_VALUE;
  for (struct mx_mapping *mapping = mappings; mapping; mapping = mapping->next)
    if (mapping->address >= address && mapping->address < address + size) return CUDA_ERROR_INVALID_VALUE;
  munmap(pointer(address), size);
  *at = found->next;
  free(found);
  mx_closed("reservation", address);
  return CUDA_SUCCESS;
}

static struct reservation *reservation_around(CUdeviceptr address, size_t size) {
  for (struct reservation *at = reservations; at; at = at->next)
    if (address >= at->address && size <= at->size && address - at->address <= at->size - size) return at;
  return NULL;
}

bool mx_reserved(CUdeviceptr address) { return reservation_around(address, 1) != NULL; }

static struct mx_physical *physical_new(int fd, size_t size, int device, unsigned handle_types, bool rdma, bool imported) {
  struct mx_physical *made = malloc(sizeof *made);
  *made = (struct mx_physical){
      .next = physicals,
      .handle = 0xca7000000000u + ++serial,
      .fd = fd,
      .device = device,
      .size = size,
      .handle_types = handle_types,
      .rdma = rdma,
      .imported = imported,
      .references = 1,
  };
  physicals = made;
  mx_opened("handle", made->handle, size);
  return made;
}

CUresult mx_physical_create(struct mx_physical **made, size_t size, int device, unsigned handle_types, bool rdma) {
  if (size > mx_device_free_bytes(device)) return CUDA_ERROR_OUT_OF_MEMORY;
  /* The name tells another process that imports the descriptor what this memory is. */
  char name[64];
  snprintf(name, sizeof name, "mx-fake-memory:%d:%u:%d", device, handle_types, rdma);
  int low = memfd_create(name, MFD_CLOEXEC);
  if (low < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  if (ftruncate(low, (off_t)size)) {
    close(low);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  used_bytes[device] += size;
  *made = physical_new(low, size, device, handle_types, rdma, false);
  return CUDA_SUCCESS;
}

CUresult mx_physical_import(struct mx_physical **made, int fd) {
  char link[64], target[128];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, target, sizeof target - 1);
  struct stat facts;
  if (length < 0 || fstat(fd, &facts)) return CUDA_ERROR_INVALID_VALUE;
  target[length] = 0;
  int device, rdma;
  unsigned handle_types;
  if (sscanf(target, "/memfd:mx-fake-memory:%d:%u:%d", &device, &handle_types, &rdma) != 3) return CUDA_ERROR_INVALID_VALUE;
  if ((size_t)device >= mx_settings.devices) return CUDA_ERROR_INVALID_DEVICE;
  int own = dup(fd);
  if (own < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *made = physical_new(own, (size_t)facts.st_size, device, handle_types, rdma, true);
  return CUDA_SUCCESS;
}

struct mx_physical *mx_physical_of(CUmemGenericAllocationHandle handle) {
  for (struct mx_physical *at = physicals; at; at = at->next)
    if (at->handle == handle && at->references) return at;
  return NULL;
}

static void physical_end(struct mx_physical *physical) {
  if (physical->references || physical->mappings) return;
  struct mx_physical **at = &physicals;
  while (*at != physical) at = &(*at)->next;
  *at = physical->next;
  if (!physical->imported) used_bytes[physical->device] -= physical->size;
  close(physical->fd);
  free(physical);
}

void mx_physical_retain(struct mx_physical *physical) {
  if (!physical->references++) mx_opened("handle", physical->handle, physical->size);
}

void mx_physical_release(struct mx_physical *physical) {
  if (!--physical->references) mx_closed("handle", physical->handle);
  physical_end(physical);
}

static struct mx_mapping *mapping_new(CUdeviceptr address, size_t size, struct mx_physical *physical) {
  if (mmap(pointer(address), size, PROT_NONE, MAP_SHARED | MAP_FIXED, physical->fd, 0) == MAP_FAILED) return NULL;
  struct mx_mapping *made = malloc(sizeof *made);
  *made = (struct mx_mapping){.next = mappings, .address = address, .size = size, .physical = physical, .serial = ++serial};
  mappings = made;
  physical->mappings++;
  return made;
}

static void mapping_end(struct mx_mapping *mapping) {
  struct mx_mapping **at = &mappings;
  while (*at != mapping) at = &(*at)->next;
  *at = mapping->next;
  mapping->physical->mappings--;
  physical_end(mapping->physical);
  free(mapping);
}

CUresult mx_map(CUdeviceptr address, size_t size, struct mx_physical *physical) {
  if (!size || !granular(size) || !granular(address) || size > physical->size) return CUDA_ERROR_INVALID_VALUE;
  if (!reservation_around(address, size)) return CUDA_ERROR_INVALID_VALUE;
  for (struct mx_mapping *at = mappings; at; at = at->next)
    if (at->address < address + size && address < at->address + at->size) return CUDA_ERROR_INVALID_VALUE;
  /* A part of a handle is refused by today's drivers. */
  if (size != physical->size) return CUDA_ERROR_NOT_SUPPORTED;
  if (!mapping_new(address, size, physical)) return CUDA_ERROR_OUT_OF_MEMORY;
  mx_opened("mapping", address, size);
  return CUDA_SUCCESS;
}

/* The bytes of the whole mappings that fill [address, address + size), or 0 where they do not fill it exactly. */
static size_t filled(CUdeviceptr address, size_t size) {
  size_t done = 0;
  while (done < size) {
    struct mx_mapping *mapping = mx_mapping_at(address + done);
    if (!mapping || mapping->plain || mapping->address != address + done || mapping->size > size - done) return 0;
    done += mapping->size;
  }
  return done;
}

CUresult mx_unmap(CUdeviceptr address, size_t size) {
  if (!size || filled(address, size) != size) return CUDA_ERROR_INVALID_VALUE;
  mx_must_be_free("unmaps", address, size);
  for (size_t done = 0; done < size;) {
    struct mx_mapping *mapping = mx_mapping_at(address + done);
    done += mapping->size;
    mx_closed("mapping", mapping->address);
    if (mmap(pointer(mapping->address), mapping->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
      mx_kill("the stand-in cannot unmap 0x%" PRIx64, (uint64_t)mapping->address);
    mapping_end(mapping);
  }
  return CUDA_SUCCESS;
}

CUresult mx_set_access(CUdeviceptr address, size_t size, unsigned access) {
  if (!size || filled(address, size) != size) return CUDA_ERROR_INVALID_VALUE;
  int protection = (access & 1 ? PROT_READ : 0) | (access & 2 ? PROT_WRITE : 0);
  if (mprotect(pointer(address), size, protection)) return CUDA_ERROR_OUT_OF_MEMORY;
  for (size_t done = 0; done < size;) {
    struct mx_mapping *mapping = mx_mapping_at(address + done);
    mapping->access = access;
    done += mapping->size;
  }
  return CUDA_SUCCESS;
}

CUresult mx_allocate(CUdeviceptr *address, size_t size, int device, CUcontext context) {
  struct mx_physical *physical;
  size_t whole = (size + 4095) / 4096 * 4096;
  if (!size) return CUDA_ERROR_INVALID_VALUE;
  if (whole < size || whole > mx_device_free_bytes(device)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult status = reserve_pages(address, whole, MX_GRANULARITY);
  if (status) return status;
  int fd = memfd_create("mx-fake-plain-memory", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, (off_t)whole)) return CUDA_ERROR_OUT_OF_MEMORY;
  used_bytes[device] += whole;
  physical = malloc(sizeof *physical);
  *physical = (struct mx_physical){.next = physicals, .fd = fd, .device = device, .size = whole, .rdma = true};
  physicals = physical;
  struct mx_mapping *mapping = mapping_new(*address, whole, physical);
  if (!mapping || mprotect(pointer(*address), whole, PROT_READ | PROT_WRITE)) return CUDA_ERROR_OUT_OF_MEMORY;
  mapping->size = size;
  mapping->access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  mapping->plain = true;
  mapping->context = context;
  mx_opened("allocation", *address, size);
  return CUDA_SUCCESS;
}

static void free_plain(struct mx_mapping *mapping) {
  mx_must_be_free("frees", mapping->address, mapping->size);
  munmap(pointer(mapping->address), mapping->physical->size);
  mx_closed("allocation", mapping->address);
  mapping_end(mapping);
}

CUresult mx_free(CUdeviceptr address) {
  struct mx_mapping *mapping = mx_mapping_at(address);
  if (!mapping || !mapping->plain || mapping->address != address) return CUDA_ERROR_INVALID_VALUE;
  free_plain(mapping);
  return CUDA_SUCCESS;
}

void mx_free_of_context(CUcontext context) {
  for (struct mx_mapping *at = mappings, *next; at; at = next) {
    next = at->next;
    if (at->plain && at->context == context) free_plain(at);
  }
}

struct mx_mapping *mx_mapping_at(CUdeviceptr address) {
  for (struct mx_mapping *at = mappings; at; at = at->next)
    if (address >= at->address && address - at->address < at->size) return at;
  return NULL;
}

bool mx_reaches(CUdeviceptr address, size_t size, unsigned access) {
  while (size) {
    struct mx_mapping *mapping = mx_mapping_at(address);
    if (!mapping || (mapping->access & access) != access) return false;
    size_t here = mapping->size - (size_t)(address - mapping->address);
    if (here >= size) return true;
    address += here;
    size -= here;
  }
  return true;
}

size_t mx_device_free_bytes(int device) { return mx_settings.device_bytes - used_bytes[device]; }
