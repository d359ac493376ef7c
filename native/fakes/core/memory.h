/*
 * Device memory: physical memory is a memfd, and mapping it is a real mmap at an address that was reserved, so bytes really move.
 * Statuses are CUDA's. All functions are called with the lock held (see call.h).
 */
#ifndef MX_FAKES_MEMORY_H
#define MX_FAKES_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../cuda/abi.h"

#define MX_GRANULARITY ((size_t)2 << 20)

struct mx_physical {
  struct mx_physical *next;
  CUmemGenericAllocationHandle handle;
  int fd, device;
  size_t size;
  unsigned handle_types;
  bool rdma, imported;
  unsigned references, mappings; /* it lives as long as one of both is left */
};

struct mx_mapping {
  struct mx_mapping *next;
  CUdeviceptr address;
  size_t size;
  struct mx_physical *physical;
  unsigned access;   /* CU_MEM_ACCESS_FLAGS_* */
  bool plain;        /* made by cuMemAlloc: one allocation, unknown to the calls of virtual memory */
  CUcontext context; /* of a plain one */
  uint64_t serial;
};

CUresult mx_reserve(CUdeviceptr *address, size_t size, size_t alignment);
CUresult mx_reserve_free(CUdeviceptr address, size_t size);

CUresult mx_physical_create(struct mx_physical **made, size_t size, int device, unsigned handle_types, bool rdma);
CUresult mx_physical_import(struct mx_physical **made, int fd);
struct mx_physical *mx_physical_of(CUmemGenericAllocationHandle handle);
void mx_physical_retain(struct mx_physical *physical);
void mx_physical_release(struct mx_physical *physical);

CUresult mx_map(CUdeviceptr address, size_t size, struct mx_physical *physical);
CUresult mx_unmap(CUdeviceptr address, size_t size);
CUresult mx_set_access(CUdeviceptr address, size_t size, unsigned access);

/* cuMemAlloc and cuMemFree. */
CUresult mx_allocate(CUdeviceptr *address, size_t size, int device, CUcontext context);
CUresult mx_free(CUdeviceptr address);

/* Frees what a context that ends still owns. */
void mx_free_of_context(CUcontext context);

/* Whether the address lies in a reservation, mapped or not. */
bool mx_reserved(CUdeviceptr address);

/* The mapping that holds an address, or NULL. */
struct mx_mapping *mx_mapping_at(CUdeviceptr address);

/* Whether [address, address + size) is mapped without a hole and with all of `access`. */
bool mx_reaches(CUdeviceptr address, size_t size, unsigned access);

size_t mx_device_free_bytes(int device);

#endif
