/* Host memory that the driver knows: pinned by cuMemHostAlloc, or registered by cuMemHostRegister. Lock held. */
#ifndef MX_FAKES_HOST_H
#define MX_FAKES_HOST_H

#include <stdbool.h>

#include "../cuda/abi.h"

struct mx_host {
  struct mx_host *next;
  uintptr_t address;
  size_t size;
  bool registered; /* by the program's own memory; else allocated here */
  CUcontext context;
  unsigned long long serial;
};

CUresult mx_host_allocate(void **address, size_t size, CUcontext context);
CUresult mx_host_free(void *address);
CUresult mx_host_register(void *address, size_t size, CUcontext context);
CUresult mx_host_unregister(void *address);
void mx_host_free_of_context(CUcontext context);

/* What the driver knows at an address, or NULL: then it is pageable. */
struct mx_host *mx_host_at(uintptr_t address);

#endif
