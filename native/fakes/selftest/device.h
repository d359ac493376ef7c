/* Device memory for scenarios: the driver started, the first device's context current, memory mapped. */
#ifndef MX_FAKES_DEVICE_H
#define MX_FAKES_DEVICE_H

#include "../cuda/prototypes.h"
#include "check.h"

#define MIB ((size_t)1 << 20)

static inline CUmemAllocationProp properties(int handle_types) {
  CUmemAllocationProp made = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .requestedHandleTypes = handle_types};
  made.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  made.allocFlags.gpuDirectRDMACapable = 1;
  return made;
}

static inline CUcontext start(void) {
  CUcontext context;
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  return context;
}

static inline CUmemGenericAllocationHandle create(size_t size) {
  CUmemGenericAllocationHandle handle;
  CUmemAllocationProp wanted = properties(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  OK(cuMemCreate(&handle, size, &wanted, 0));
  return handle;
}

static inline void give_access(CUdeviceptr address, size_t size) {
  CUmemAccessDesc both = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  OK(cuMemSetAccess(address, size, &both, 1));
}

/* One reservation, filled by one handle, which is released already. */
static inline CUdeviceptr map_whole(size_t size) {
  CUdeviceptr address;
  OK(cuMemAddressReserve(&address, size, 0, 0, 0));
  CUmemGenericAllocationHandle handle = create(size);
  OK(cuMemMap(address, size, 0, handle, 0));
  OK(cuMemRelease(handle));
  give_access(address, size);
  return address;
}

static inline void unmap_whole(CUdeviceptr address, size_t size) {
  OK(cuMemUnmap(address, size));
  OK(cuMemAddressFree(address, size));
}

static inline void stop(void) { OK(cuDevicePrimaryCtxRelease_v2(0)); }

#endif
