/* The rules of libcuda.so.1: what it must allow, and what it must refuse and how. */
#include <unistd.h>

#include "device.h"

static CUmemGenericAllocationHandle nothing;

static void before_init(void) {
  int count;
  CUcontext context;
  CUdeviceptr address;
  CUmemAllocationProp wanted = properties(1);
  IS(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
  IS(cuDevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_NOT_INITIALIZED);
  IS(cuMemAddressReserve(&address, 2 * MIB, 0, 0, 0), CUDA_ERROR_NOT_INITIALIZED);
  IS(cuMemCreate(&nothing, 2 * MIB, &wanted, 0), CUDA_ERROR_NOT_INITIALIZED);
  IS(cuInit(1), CUDA_ERROR_INVALID_VALUE);
  OK(cuDriverGetVersion(&count));
  IS(count, 12090);
}

static void contexts(void) {
  CUcontext first, again, popped;
  CUdeviceptr address;
  CUdevice device;
  unsigned flags;
  int active;
  OK(cuInit(0));
  IS(cuMemAddressReserve(&address, 2 * MIB, 0, 0, 0), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuMemAlloc_v2(&address, 1), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuCtxGetDevice(&device), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuCtxPopCurrent_v2(&popped), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuDevicePrimaryCtxRetain(&first, 7), CUDA_ERROR_INVALID_DEVICE);
  IS(cuCtxSetCurrent((CUcontext)&address), CUDA_ERROR_INVALID_CONTEXT);
  OK(cuDevicePrimaryCtxRetain(&first, 1));
  OK(cuDevicePrimaryCtxRetain(&again, 1));
  IS(first == again, 1);
  OK(cuCtxPushCurrent_v2(first));
  OK(cuCtxGetDevice(&device));
  IS(device, 1);
  OK(cuDevicePrimaryCtxRelease_v2(1));
  OK(cuDevicePrimaryCtxGetState(1, &flags, &active));
  IS(active, 1);
  OK(cuDevicePrimaryCtxRelease_v2(1));
  OK(cuDevicePrimaryCtxGetState(1, &flags, &active));
  IS(active, 0);
  IS(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  IS(cuCtxSetCurrent(first), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  OK(cuCtxPopCurrent_v2(&popped));
  IS(popped == first, 1);
}

static void devices(void) {
  int count, value;
  char name[32], id[16];
  size_t bytes;
  CUuuid zero, one;
  start();
  OK(cuDeviceGetCount(&count));
  IS(count, 2);
  IS(cuDeviceGet(&value, 2), CUDA_ERROR_INVALID_DEVICE);
  IS(cuDeviceGet(&value, -1), CUDA_ERROR_INVALID_DEVICE);
  OK(cuDeviceGetName(name, sizeof name, 1));
  IS(strcmp(name, "Stand-in GPU 1"), 0);
  OK(cuDeviceGetPCIBusId(id, sizeof id, 1));
  IS(strcmp(id, "0000:02:00.0"), 0);
  OK(cuDeviceGetUuid(&zero, 0));
  OK(cuDeviceGetUuid_v2(&one, 1));
  IS(memcmp(&zero, &one, sizeof zero) != 0, 1);
  OK(cuDeviceTotalMem_v2(&bytes, 0));
  IS(bytes, 64 * MIB);
  OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
  IS(value, 1);
  IS(cuDeviceGetAttribute(&value, 0, 0), CUDA_ERROR_INVALID_VALUE);
  stop();
}

static void reserving(void) {
  CUdeviceptr address;
  start();
  IS(cuMemAddressReserve(&address, 0, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemAddressReserve(&address, MIB, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemAddressReserve(&address, 2 * MIB, 3 * MIB, 0, 0), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemAddressReserve(&address, 2 * MIB, 0, 0, 1), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemAddressReserve(&address, (size_t)1 << 60, 0, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuMemAddressReserve(&address, (size_t)1 << 44, 64 * MIB, 0, 0));
  IS(address % (64 * MIB), 0);
  IS(cuMemAddressFree(address, 2 * MIB), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemAddressFree(address + 2 * MIB, 2 * MIB), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemAddressFree(address, (size_t)1 << 44));
  IS(cuMemAddressFree(address, (size_t)1 << 44), CUDA_ERROR_INVALID_VALUE);
  stop();
}

static void creating(void) {
  CUmemGenericAllocationHandle handle;
  CUmemAllocationProp wanted = properties(1), wrong = wanted;
  size_t granularity;
  start();
  OK(cuMemGetAllocationGranularity(&granularity, &wanted, 0));
  IS(granularity, 2 * MIB);
  IS(cuMemCreate(&handle, 0, &wanted, 0), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemCreate(&handle, MIB, &wanted, 0), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemCreate(&handle, 2 * MIB, &wanted, 1), CUDA_ERROR_INVALID_VALUE);
  wrong.type = 0;
  IS(cuMemCreate(&handle, 2 * MIB, &wrong, 0), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemGetAllocationGranularity(&granularity, &wrong, 0), CUDA_ERROR_INVALID_VALUE);
  wrong = wanted, wrong.location.id = 5;
  IS(cuMemCreate(&handle, 2 * MIB, &wrong, 0), CUDA_ERROR_INVALID_DEVICE);
  wrong = properties(CU_MEM_HANDLE_TYPE_FABRIC);
  IS(cuMemCreate(&handle, 2 * MIB, &wrong, 0), CUDA_ERROR_NOT_SUPPORTED);
  IS(cuMemCreate(&handle, 66 * MIB, &wanted, 0), CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuMemCreate(&handle, 64 * MIB, &wanted, 0));
  IS(cuMemCreate(&nothing, 2 * MIB, &wanted, 0), CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuMemRelease(handle));
  IS(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemCreate(&handle, 64 * MIB, &wanted, 0));
  OK(cuMemRelease(handle));
  stop();
}

static void fabric(int expected) {
  CUmemAllocationProp wanted = properties(CU_MEM_HANDLE_TYPE_FABRIC);
  CUmemGenericAllocationHandle handle;
  start();
  IS(cuMemCreate(&handle, 2 * MIB, &wanted, 0), expected);
  if (!expected) OK(cuMemRelease(handle));
  stop();
}

static void fabric_not_permitted(void) { fabric(CUDA_ERROR_NOT_PERMITTED); }
static void fabric_supported(void) { fabric(CUDA_SUCCESS); }

static void mapping(void) {
  CUdeviceptr address;
  unsigned long long flags;
  CUmemLocation device = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  start();
  CUmemGenericAllocationHandle handle = create(4 * MIB), other = create(2 * MIB);
  OK(cuMemAddressReserve(&address, 8 * MIB, 0, 0, 0));
  IS(cuMemMap(address, 4 * MIB, 0, 12345, 0), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemMap(address, 4 * MIB, 2 * MIB, handle, 0), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemMap(address, 6 * MIB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemMap(address, 2 * MIB, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
  IS(cuMemMap(address + MIB, 4 * MIB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemMap(address + 6 * MIB, 4 * MIB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemMap(address, 4 * MIB, 0, handle, 0));
  IS(cuMemMap(address + 2 * MIB, 2 * MIB, 0, other, 0), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemMap(address + 4 * MIB, 2 * MIB, 0, other, 0));
  OK(cuMemGetAccess(&flags, &device, address));
  IS(flags, 0);
  CUmemAccessDesc both = {device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  IS(cuMemSetAccess(address, 8 * MIB, &both, 1), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemSetAccess(address, 2 * MIB, &both, 1), CUDA_ERROR_INVALID_VALUE);
  both.location.id = 3;
  IS(cuMemSetAccess(address, 6 * MIB, &both, 1), CUDA_ERROR_INVALID_DEVICE);
  give_access(address, 6 * MIB);
  OK(cuMemGetAccess(&flags, &device, address + 5 * MIB));
  IS(flags, 3);
  IS(cuMemAddressFree(address, 8 * MIB), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemUnmap(address, 2 * MIB), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemUnmap(address, 8 * MIB), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemUnmap(address, 6 * MIB));
  IS(cuMemUnmap(address, 6 * MIB), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemRelease(handle));
  OK(cuMemRelease(other));
  OK(cuMemAddressFree(address, 8 * MIB));
  stop();
}

static void copying(void) {
  CUdeviceptr address, plain;
  char out[8] = "";
  start();
  OK(cuMemAddressReserve(&address, 4 * MIB, 0, 0, 0));
  CUmemGenericAllocationHandle handle = create(2 * MIB);
  OK(cuMemMap(address, 2 * MIB, 0, handle, 0));
  IS(cuMemcpyHtoD_v2(address, "weights", 8), CUDA_ERROR_ILLEGAL_ADDRESS);
  give_access(address, 2 * MIB);
  IS(cuMemcpyHtoD_v2(address + 2 * MIB - 4, "weights", 8), CUDA_ERROR_ILLEGAL_ADDRESS);
  IS(cuMemcpyHtoD_v2(address + 3 * MIB, "weights", 8), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyHtoD_v2(address, NULL, 8), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemcpyHtoD_v2(address + 100, "weights", 8));
  OK(cuMemAlloc_v2(&plain, 100));
  OK(cuMemcpyDtoD_v2(plain, address + 100, 8));
  IS(cuMemcpyDtoH_v2(out, plain + 96, 8), CUDA_ERROR_ILLEGAL_ADDRESS);
  OK(cuMemcpyDtoH_v2(out, plain, 8));
  IS(strcmp(out, "weights"), 0);
  OK(cuMemsetD8_v2(plain, 7, 100));
  OK(cuMemcpy((CUdeviceptr)(uintptr_t)out, plain, 1));
  IS(out[0], 7);
  IS(cuMemUnmap(plain, 100), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemFree_v2(plain + 1), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemFree_v2(plain));
  IS(cuMemFree_v2(plain), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemUnmap(address, 2 * MIB));
  /* The handle keeps its bytes while it lives. */
  OK(cuMemMap(address, 2 * MIB, 0, handle, 0));
  give_access(address, 2 * MIB);
  OK(cuMemcpyDtoH_v2(out, address + 100, 8));
  IS(strcmp(out, "weights"), 0);
  OK(cuMemRelease(handle));
  OK(cuMemUnmap(address, 2 * MIB));
  OK(cuMemAddressFree(address, 4 * MIB));
  stop();
}

static void streams(void) {
  CUstream stream, second;
  CUevent event;
  void *pinned;
  char *out;
  start();
  CUdeviceptr address = map_whole(2 * MIB);
  OK(cuStreamCreate(&stream, 1));
  OK(cuStreamCreate(&second, 0));
  OK(cuEventCreate(&event, 2));
  OK(cuMemHostAlloc(&pinned, MIB, 0));
  OK(cuMemAllocHost_v2((void **)&out, MIB));
  memset(pinned, 9, MIB);
  OK(cuEventQuery(event));
  OK(cuMemcpyHtoDAsync_v2(address, pinned, MIB, stream));
  OK(cuEventRecord(event, stream));
  IS(cuEventQuery(event), CUDA_ERROR_NOT_READY);
  IS(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  OK(cuStreamWaitEvent(second, event, 0));
  OK(cuMemcpyDtoHAsync_v2(out, address, MIB, second));
  OK(cuStreamSynchronize(second));
  OK(cuEventQuery(event));
  IS(out[MIB - 1], 9);
  OK(cuMemFreeHost(pinned));
  OK(cuMemFreeHost(out));
  IS(cuMemFreeHost(out), CUDA_ERROR_INVALID_VALUE);
  OK(cuEventDestroy_v2(event));
  IS(cuEventDestroy_v2(event), CUDA_ERROR_INVALID_HANDLE);
  IS(cuEventRecord(event, stream), CUDA_ERROR_INVALID_HANDLE);
  OK(cuStreamDestroy_v2(stream));
  OK(cuStreamDestroy_v2(second));
  IS(cuStreamDestroy_v2(second), CUDA_ERROR_INVALID_HANDLE);
  IS(cuStreamSynchronize(second), CUDA_ERROR_INVALID_HANDLE);
  unmap_whole(address, 2 * MIB);
  stop();
}

static void host_memory(void) {
  static char own[8192] __attribute__((aligned(4096)));
  unsigned type;
  start();
  OK(cuMemHostRegister_v2(own, sizeof own, 0));
  IS(cuMemHostRegister_v2(own + 4096, 4096, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)own));
  IS(type, CU_MEMORYTYPE_HOST);
  IS(cuMemFreeHost(own), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemHostUnregister(own));
  IS(cuMemHostUnregister(own), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  IS(cuMemHostRegister_v2((void *)4096, 4096, 0), CUDA_ERROR_INVALID_VALUE);
  IS(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)own), CUDA_ERROR_INVALID_VALUE);
  stop();
}

static void sharing(void) {
  CUdeviceptr address;
  CUmemGenericAllocationHandle again;
  int fd, whole;
  start();
  OK(cuMemAddressReserve(&address, 4 * MIB, 0, 0, 0));
  CUmemGenericAllocationHandle first = create(2 * MIB), second = create(2 * MIB);
  OK(cuMemMap(address, 2 * MIB, 0, first, 0));
  OK(cuMemGetHandleForAddressRange(&whole, address, 2 * MIB, 1, 0));
  close(whole);
  IS(cuMemGetHandleForAddressRange(&whole, address, 4 * MIB, 1, 0), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemMap(address + 2 * MIB, 2 * MIB, 0, second, 0));
  IS(cuMemGetHandleForAddressRange(&whole, address, 4 * MIB, 1, 0), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemGetHandleForAddressRange(&whole, address + 100, 4096, 1, 0), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemExportToShareableHandle(&fd, first, CU_MEM_HANDLE_TYPE_FABRIC, 0), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemExportToShareableHandle(&fd, first, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  give_access(address, 4 * MIB);
  OK(cuMemcpyHtoD_v2(address, "shared", 7));
  IS(cuMemImportFromShareableHandle(&again, (void *)(intptr_t)0, 1), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemImportFromShareableHandle(&again, (void *)(intptr_t)fd, 1));
  close(fd);
  OK(cuMemUnmap(address + 2 * MIB, 2 * MIB));
  OK(cuMemMap(address + 2 * MIB, 2 * MIB, 0, again, 0));
  give_access(address + 2 * MIB, 2 * MIB);
  char out[7];
  OK(cuMemcpyDtoH_v2(out, address + 2 * MIB, 7));
  IS(strcmp(out, "shared"), 0);
  CUmemGenericAllocationHandle retained;
  OK(cuMemRelease(again));
  OK(cuMemRetainAllocationHandle(&retained, (void *)(uintptr_t)(address + 3 * MIB)));
  IS(retained, again);
  OK(cuMemRelease(retained));
  IS(cuMemRelease(retained), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemUnmap(address, 4 * MIB));
  OK(cuMemRelease(first));
  OK(cuMemRelease(second));
  OK(cuMemAddressFree(address, 4 * MIB));
  stop();
}

/* With dmabuf=any a range over two handles can be exported; without the RDMA flag none can. */
static void dmabuf_any(void) {
  CUdeviceptr address;
  CUmemGenericAllocationHandle handle;
  CUmemAllocationProp plain = properties(0);
  int fd;
  plain.allocFlags.gpuDirectRDMACapable = 0;
  start();
  OK(cuMemAddressReserve(&address, 6 * MIB, 0, 0, 0));
  for (int at = 0; at < 3; at++) {
    if (at < 2) handle = create(2 * MIB);
    else OK(cuMemCreate(&handle, 2 * MIB, &plain, 0));
    OK(cuMemMap(address + (size_t)at * 2 * MIB, 2 * MIB, 0, handle, 0));
    OK(cuMemRelease(handle));
  }
  OK(cuMemGetHandleForAddressRange(&fd, address, 4 * MIB, 1, 0));
  close(fd);
  IS(cuMemGetHandleForAddressRange(&fd, address, 6 * MIB, 1, 0), CUDA_ERROR_NOT_SUPPORTED);
  OK(cuMemUnmap(address, 6 * MIB));
  OK(cuMemAddressFree(address, 6 * MIB));
  stop();
}

static void pointers(void) {
  start();
  CUdeviceptr address = map_whole(4 * MIB), base;
  size_t size;
  int ordinal = 9;
  unsigned rdma, type;
  CUcontext context;
  int wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, CU_POINTER_ATTRIBUTE_CONTEXT};
  void *data[] = {&type, &ordinal, &rdma, &context};
  OK(cuPointerGetAttributes(4, wanted, data, address + 5));
  IS(type, CU_MEMORYTYPE_DEVICE);
  IS(ordinal, 0);
  IS(rdma, 1);
  IS(context == NULL, 1);
  OK(cuMemGetAddressRange_v2(&base, &size, address + 3 * MIB));
  IS(base, address);
  IS(size, 4 * MIB);
  OK(cuPointerGetAttributes(2, wanted, data, 64));
  IS(type, 0);
  IS(ordinal, -2);
  unmap_whole(address, 4 * MIB);
  IS(cuMemGetAddressRange_v2(&base, &size, address), CUDA_ERROR_NOT_FOUND);
  stop();
}

static void names(void) {
  const char *text;
  void *function;
  int found;
  OK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
  IS(strcmp(text, "CUDA_ERROR_OUT_OF_MEMORY"), 0);
  OK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
  IS(strcmp(text, "out of memory"), 0);
  IS(cuGetErrorName(12345, &text), CUDA_ERROR_INVALID_VALUE);
  OK(cuGetProcAddress_v2("cuMemAlloc", &function, 12000, 0, &found));
  IS(function == (void *)cuMemAlloc_v2, 1);
  OK(cuGetProcAddress_v2("cuNoSuchThing", &function, 12000, 0, &found));
  IS(function == NULL && found == 1, 1);
  IS(cuGetProcAddress_v2("cuNoSuchThing", &function, 12000, 0, NULL), CUDA_ERROR_NOT_FOUND);
}

/* What a context still owns ends with it; virtual memory does not. */
static void context_owns(void) {
  CUdeviceptr plain;
  void *pinned;
  CUstream stream;
  CUevent event;
  start();
  OK(cuMemAlloc_v2(&plain, MIB));
  OK(cuMemHostAlloc(&pinned, MIB, 0));
  OK(cuStreamCreate(&stream, 0));
  OK(cuEventCreate(&event, 0));
  CUdeviceptr address = map_whole(2 * MIB);
  stop();
  IS(cuMemFree_v2(plain), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  start();
  IS(cuMemFree_v2(plain), CUDA_ERROR_INVALID_VALUE);
  IS(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
  unmap_whole(address, 2 * MIB);
  stop();
}

/* Each of these ends the process. */
static CUdeviceptr copy_in_flight(void **pinned) {
  CUstream stream;
  start();
  CUdeviceptr address = map_whole(2 * MIB);
  OK(cuStreamCreate(&stream, 0));
  OK(cuMemHostAlloc(pinned, MIB, 0));
  OK(cuMemcpyHtoDAsync_v2(address, *pinned, MIB, stream));
  return address;
}

static void unmap_under_copy(void) {
  void *pinned;
  cuMemUnmap(copy_in_flight(&pinned), 2 * MIB);
}

static void free_under_copy(void) {
  void *pinned;
  copy_in_flight(&pinned);
  cuMemFreeHost(pinned);
}

/* The host cannot touch what has no access, like memory of a device. */
static void touch_without_access(void) {
  CUdeviceptr address;
  start();
  OK(cuMemAddressReserve(&address, 2 * MIB, 0, 0, 0));
  OK(cuMemMap(address, 2 * MIB, 0, create(2 * MIB), 0));
  *(volatile char *)(uintptr_t)address = 1;
}

/* Leaves everything open. */
static void leaves(void) {
  CUstream stream;
  void *pinned;
  start();
  map_whole(2 * MIB);
  create(2 * MIB);
  OK(cuStreamCreate(&stream, 0));
  OK(cuMemHostAlloc(&pinned, 4096, 0));
  _exit(0);
}

static void planned(void) {
  CUdeviceptr address;
  start();
  OK(cuMemAlloc_v2(&address, 1));
  OK(cuMemAlloc_v2(&address, 1));
  IS(cuMemAlloc_v2(&address, 1), CUDA_ERROR_ECC_UNCORRECTABLE);
  OK(cuMemAlloc_v2(&address, 1));
  IS(cuMemAlloc_v2(&address, 1), CUDA_ERROR_OUT_OF_MEMORY);
  IS(cuMemAlloc_v2(&address, 1), CUDA_ERROR_OUT_OF_MEMORY);
  /* A release that fails has released nothing. */
  IS(cuMemFree_v2(address), CUDA_ERROR_UNKNOWN);
  stop();
}

/* Prints which of a hundred calls failed. */
static void drawn(void) {
  int version;
  for (int call = 0; call < 100; call++) putchar(cuDriverGetVersion(&version) ? 'x' : '.');
}

int main(int argc, char **argv) {
#define ROW(name) {#name, name}
  static const struct scenario scenarios[] = {
      ROW(before_init), ROW(contexts), ROW(devices), ROW(reserving), ROW(creating), ROW(fabric_not_permitted), ROW(fabric_supported),
      ROW(mapping), ROW(copying), ROW(streams), ROW(host_memory), ROW(sharing), ROW(dmabuf_any), ROW(pointers), ROW(names),
      ROW(context_owns), ROW(unmap_under_copy), ROW(free_under_copy), ROW(touch_without_access), ROW(leaves), ROW(planned), ROW(drawn),
      {0},
  };
  return run_scenario(scenarios, argc, argv);
}
