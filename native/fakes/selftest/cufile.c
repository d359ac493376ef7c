/* The rules of libcufile.so.0. */
#define _GNU_SOURCE
#include "../cufile/abi.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "device.h"

enum { FILE_BYTES = 10000 };

static int make_file(void) {
  char path[] = "/tmp/mx-fakes-XXXXXX", bytes[FILE_BYTES];
  int fd = mkstemp(path);
  unlink(path);
  for (int at = 0; at < FILE_BYTES; at++) bytes[at] = (char)(at * 7);
  IS(write(fd, bytes, sizeof bytes), FILE_BYTES);
  return fd;
}

static CUfileHandle_t registered(int fd) {
  CUfileHandle_t handle;
  CUfileDescr_t description = {.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD, .handle.fd = fd};
  OK(cuFileHandleRegister(&handle, &description).err);
  return handle;
}

static void *pointer(CUdeviceptr address) { return (void *)(uintptr_t)address; }

static void driver(void) {
  CUfileDrvProps_t properties;
  size_t kilobytes;
  bool flag;
  int version;
  IS(cuFileDriverClose_v2().err, CU_FILE_DRIVER_NOT_INITIALIZED);
  IS(cuFileDriverGetProperties(&properties).err, CU_FILE_DRIVER_NOT_INITIALIZED);
  OK(cuFileDriverSetMaxPinnedMemSize(8192).err);
  OK(cuFileDriverOpen().err);
  OK(cuFileDriverOpen().err);
  IS(cuFileUseCount(), 2);
  IS(cuFileDriverSetMaxPinnedMemSize(8192).err, CU_FILE_DRIVER_ALREADY_OPEN);
  OK(cuFileDriverGetProperties(&properties).err);
  IS(properties.max_device_pinned_mem_size, 8192);
  OK(cuFileGetParameterSizeT(8, &kilobytes).err);
  IS(kilobytes, 8192);
  OK(cuFileGetParameterBool(1, &flag).err);
  IS(flag, true);
  OK(cuFileGetVersion(&version).err);
  OK(cuFileDriverClose_v2().err);
  OK(cuFileDriverClose_v2().err);
  IS(cuFileUseCount(), 0);
}

static void files(void) {
  CUfileHandle_t handle;
  CUfileDescr_t description = {.type = 2};
  int fd = make_file(), pipes[2];
  IS(cuFileHandleRegister(&handle, &description).err, CU_FILE_IO_NOT_SUPPORTED);
  description.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD, description.handle.fd = 999;
  IS(cuFileHandleRegister(&handle, &description).err, CU_FILE_INVALID_VALUE);
  IS(pipe(pipes), 0);
  description.handle.fd = pipes[0];
  IS(cuFileHandleRegister(&handle, &description).err, CU_FILE_INVALID_FILE_TYPE);
  handle = registered(fd);
  description.handle.fd = fd;
  IS(cuFileHandleRegister(&handle, &description).err, CU_FILE_HANDLE_ALREADY_REGISTERED);
  cuFileHandleDeregister(handle);
  cuFileHandleDeregister(registered(fd));
  OK(cuFileDriverClose_v2().err);
}

static void files_refused(void) {
  CUfileHandle_t handle;
  CUfileDescr_t description = {.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD, .handle.fd = make_file()};
  IS(cuFileHandleRegister(&handle, &description).err, CU_FILE_INTERNAL_ERROR);
}

static void registering(void) {
  CUdeviceptr address;
  start();
  OK(cuMemAddressReserve(&address, 6 * MIB, 0, 0, 0));
  for (int at = 0; at < 2; at++) {
    CUmemGenericAllocationHandle handle = create(2 * MIB);
    OK(cuMemMap(address + (size_t)at * 2 * MIB, 2 * MIB, 0, handle, 0));
    OK(cuMemRelease(handle));
  }
  IS(cuFileBufRegister(pointer(address + 4 * MIB), 2 * MIB, 0).err, CU_FILE_CUDA_POINTER_INVALID);
  IS(cuFileBufRegister(pointer(address), 2 * MIB, 0).err, CU_FILE_PERMISSION_DENIED);
  give_access(address, 4 * MIB);
  IS(cuFileBufRegister(NULL, 2 * MIB, 0).err, CU_FILE_INVALID_VALUE);
  IS(cuFileBufRegister(pointer(address), 0, 0).err, CU_FILE_INVALID_VALUE);
  IS(cuFileBufRegister(pointer(address), 6 * MIB, 0).err, CU_FILE_CUDA_POINTER_RANGE_ERROR);
  /* Over two handles. */
  IS(cuFileBufRegister(pointer(address), 4 * MIB, 0).err, CU_FILE_CUDA_POINTER_RANGE_ERROR);
  OK(cuFileBufRegister(pointer(address), 2 * MIB, 0).err);
  IS(cuFileBufRegister(pointer(address), MIB, 0).err, CU_FILE_MEMORY_ALREADY_REGISTERED);
  /* The limit is 3 MiB. */
  IS(cuFileBufRegister(pointer(address + 2 * MIB), 2 * MIB, 0).err, CU_FILE_INVALID_MAPPING_SIZE);
  OK(cuFileBufRegister(pointer(address + 2 * MIB), MIB, 0).err);
  OK(cuFileBufDeregister(pointer(address)).err);
  IS(cuFileBufDeregister(pointer(address)).err, CU_FILE_MEMORY_NOT_REGISTERED);
  OK(cuFileBufDeregister(pointer(address + 2 * MIB)).err);
  CUcontext popped;
  OK(cuCtxPopCurrent_v2(&popped));
  CUfileError_t without = cuFileBufRegister(pointer(address), MIB, 0);
  IS(without.err, CU_FILE_CUDA_DRIVER_ERROR);
  IS(without.cu_err, CUDA_ERROR_INVALID_CONTEXT);
  OK(cuCtxPushCurrent_v2(popped));
  OK(cuMemUnmap(address, 4 * MIB));
  OK(cuMemAddressFree(address, 6 * MIB));
  OK(cuFileDriverClose_v2().err);
  stop();
}

static void reading(void) {
  unsigned char host[FILE_BYTES];
  start();
  CUdeviceptr address = map_whole(2 * MIB);
  int fd = make_file();
  CUfileHandle_t file = registered(fd);
  void *base = pointer(address);
  IS(cuFileRead(NULL, base, 10, 0, 0), -CU_FILE_INVALID_VALUE);
  IS(cuFileRead((CUfileHandle_t)host, base, 10, 0, 0), -CU_FILE_HANDLE_NOT_REGISTERED);
  IS(cuFileRead(file, base, 10, -1, 0), -CU_FILE_INVALID_VALUE);
  IS(cuFileRead(file, pointer(4096), 10, 0, 0), -CU_FILE_CUDA_POINTER_INVALID);
  IS(cuFileRead(file, base, 4096, 0, 2 * MIB - 100), -CU_FILE_CUDA_POINTER_RANGE_ERROR);
  OK(cuFileBufRegister(base, 8192, 0).err);
  IS(cuFileRead(file, base, 8192, 0, 100), -CU_FILE_INVALID_MAPPING_RANGE);
  IS(cuFileRead(file, base, 4096, 0, 4096), 4096);
  /* Past the end: what is there, then nothing. */
  IS(cuFileRead(file, pointer(address + MIB), 8192, 4096, 0), FILE_BYTES - 4096);
  IS(cuFileRead(file, pointer(address + MIB), 8192, FILE_BYTES, 0), 0);
  OK(cuMemcpyDtoH_v2(host, address + 4096, 4096));
  for (int at = 0; at < 4096; at++) IS(host[at], (unsigned char)(at * 7));
  OK(cuMemsetD8_v2(address, 42, 10));
  IS(cuFileWrite(file, base, 10, 5, 0), 10);
  IS(pread(fd, host, 1, 14), 1);
  IS(host[0], 42);
  OK(cuFileBufDeregister(base).err);
  cuFileHandleDeregister(file);
  close(fd);
  OK(cuFileDriverClose_v2().err);
  unmap_whole(address, 2 * MIB);
  stop();
}

static void reading_short(void) {
  start();
  CUdeviceptr address = map_whole(2 * MIB);
  CUfileHandle_t file = registered(make_file());
  IS(cuFileRead(file, pointer(address), 4096, 0, 0), 4096);
  IS(cuFileRead(file, pointer(address), 4096, 0, 0), 512);
  IS(cuFileRead(file, pointer(address), 4096, 0, 0), -CU_FILE_NVFS_DRIVER_ERROR);
  cuFileHandleDeregister(file);
}

static void no_access(void) {
  CUdeviceptr address;
  start();
  OK(cuMemAddressReserve(&address, 2 * MIB, 0, 0, 0));
  OK(cuMemMap(address, 2 * MIB, 0, create(2 * MIB), 0));
  IS(cuFileRead(registered(make_file()), pointer(address), 4096, 0, 0), -CU_FILE_PERMISSION_DENIED);
}

/* Each of these ends the process. */
static CUfileHandle_t slow_file;
static atomic_bool begun;

static void *read_slowly(void *memory) {
  begun = true;
  cuFileRead(slow_file, memory, 4096, 0, 0);
  return NULL;
}

static CUdeviceptr read_in_flight(void) {
  pthread_t thread;
  start();
  CUdeviceptr address = map_whole(2 * MIB);
  OK(cuFileBufRegister(pointer(address), MIB, 0).err);
  slow_file = registered(make_file());
  pthread_create(&thread, NULL, read_slowly, pointer(address));
  while (!begun) usleep(1000);
  usleep(200000);
  return address;
}

static void unmap_under_read(void) { cuMemUnmap(read_in_flight(), 2 * MIB); }

static void deregister_buffer_under_read(void) { cuFileBufDeregister(pointer(read_in_flight())); }

static void deregister_file_under_read(void) {
  read_in_flight();
  cuFileHandleDeregister(slow_file);
}

static void close_driver_under_read(void) {
  read_in_flight();
  cuFileDriverClose_v2();
}

static void unmap_registered(void) {
  start();
  CUdeviceptr address = map_whole(2 * MIB);
  OK(cuFileBufRegister(pointer(address), MIB, 0).err);
  cuMemUnmap(address, 2 * MIB);
}

static void read_stale_handle(void) {
  start();
  CUfileHandle_t file = registered(make_file());
  cuFileHandleDeregister(file);
  cuFileRead(file, pointer(map_whole(2 * MIB)), 1, 0, 0);
}

static void read_closed_descriptor(void) {
  start();
  int fd = make_file();
  CUfileHandle_t file = registered(fd);
  close(fd);
  cuFileRead(file, pointer(map_whole(2 * MIB)), 1, 0, 0);
}

static void deregister_twice(void) {
  CUfileHandle_t file = registered(make_file());
  cuFileHandleDeregister(file);
  cuFileHandleDeregister(file);
}

int main(int argc, char **argv) {
#define ROW(name) {#name, name}
  static const struct scenario scenarios[] = {
      ROW(driver), ROW(files), ROW(files_refused), ROW(registering), ROW(reading), ROW(reading_short), ROW(no_access), ROW(unmap_under_read),
      ROW(deregister_buffer_under_read), ROW(deregister_file_under_read), ROW(close_driver_under_read), ROW(unmap_registered),
      ROW(read_stale_handle), ROW(read_closed_descriptor), ROW(deregister_twice), {0},
  };
  return run_scenario(scenarios, argc, argv);
}
