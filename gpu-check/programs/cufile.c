/* cuFileRead into {legacy, virtual} memory, {with, without} a context, {registered, not}, {aligned, not}. Each case is compared byte by byte. */
#include "ask.h"
#include <pthread.h>

enum { MIB = 1 << 20, PIECE = 4 * MIB };
typedef struct { int error, cuda_error; } Status;
typedef struct { int type; union { int fd; void *handle; } handle; const void *operations; } Description;

static void *cufile, *context, *file;
static int descriptor;
#define CUFILE(result, name, types, ...) (((result(*) types)find(cufile, #name))(__VA_ARGS__))

typedef struct {
  Address address;
  int with_context, registered;
  off_t offset, skip;
} Case;

/* A thread of its own for each case, as a new thread has no context. */
static void *read_case(void *argument) {
  Case *it = argument;
  static unsigned char got[PIECE + 4096], expected[PIECE];
  if (it->with_context) must("cuCtxSetCurrent", CU(cuCtxSetCurrent, (void *), context));
  Status registering = {0, 0};
  if (it->registered) registering = CUFILE(Status, cuFileBufRegister, (const void *, size_t, int), (void *)it->address, 2 * PIECE, 0);
  double begin = now_ms();
  ssize_t bytes = CUFILE(ssize_t, cuFileRead, (void *, void *, size_t, off_t, off_t), file, (void *)it->address, PIECE, it->offset, it->skip);
  double ms = now_ms() - begin;
  must("cuCtxSetCurrent", CU(cuCtxSetCurrent, (void *), context));
  int same = -1;
  if (bytes == PIECE && pread(descriptor, expected, PIECE, it->offset) == PIECE) {
    must("cuMemcpyDtoH", CU(cuMemcpyDtoH_v2, (void *, Address, size_t), got, it->address + it->skip, PIECE));
    same = memcmp(got, expected, PIECE) == 0;
  }
  if (it->registered && registering.error == 0) CUFILE(Status, cuFileBufDeregister, (const void *), (void *)it->address);
  answer("read", "\"context\":%d,\"registered\":%d,\"registerStatus\":%d,\"fileOffset\":%lld,\"memoryOffset\":%lld,\"bytes\":%zd,\"same\":%d,\"ms\":%.2f",
         it->with_context, it->registered, registering.error, (long long)it->offset, (long long)it->skip, bytes, same, ms);
  return NULL;
}

static void cases(const char *memory, Address address) {
  answer("memory", "\"kind\":\"%s\"", memory);
  for (int row = 0; row < 16; row++) {
    Case it = {.address = address, .with_context = row & 1, .registered = row >> 1 & 1, .offset = row & 4 ? 12345 : 0, .skip = row & 8 ? 256 : 0};
    pthread_t thread;
    if (pthread_create(&thread, NULL, read_case, &it) != 0) unavailable("no thread can be started");
    pthread_join(thread, NULL);
  }
}

int main(int count, char **words) {
  if (count < 3) return 64;
  int device = atoi(words[1]);
  context = open_cuda(device);
  cufile = dlopen("libcufile.so.0", RTLD_NOW);
  if (cufile == NULL) cufile = dlopen("libcufile.so", RTLD_NOW);
  if (cufile == NULL) unavailable("%s", dlerror());
  descriptor = open(words[2], O_RDONLY);
  int direct = open(words[2], O_RDONLY | O_DIRECT);
  if (descriptor < 0) unavailable("%s cannot be opened", words[2]);
  double begin = now_ms();
  Status opened = CUFILE(Status, cuFileDriverOpen, (void), );
  answer("driver", "\"status\":%d,\"ms\":%.2f,\"directDescriptor\":%d", opened.error, now_ms() - begin, direct >= 0);
  if (opened.error != 0) return 1;
  for (int plain = 0; plain <= 1; plain++) {
    Description description = {.type = 1, .handle = {.fd = plain || direct < 0 ? descriptor : direct}};
    Status status = CUFILE(Status, cuFileHandleRegister, (void **, Description *), &file, &description);
    answer("file", "\"descriptor\":\"%s\",\"status\":%d", plain ? "plain" : "O_DIRECT", status.error);
    if (status.error != 0) continue;
    Address address = 0;
    must("cuMemAlloc", CU(cuMemAlloc_v2, (Address *, size_t), &address, 2 * PIECE));
    cases(plain ? "cuMemAlloc, plain descriptor" : "cuMemAlloc, O_DIRECT", address);
    must("cuMemFree", CU(cuMemFree_v2, (Address), address));
    Properties properties = device_memory(device, 1, 1);
    Access access = {.location = {1, device}, .flags = 3};
    Handle handle = 0;
    must("cuMemAddressReserve", CU(cuMemAddressReserve, (Address *, size_t, size_t, Address, unsigned long long), &address, 2 * PIECE, 2 * MIB, 0, 0));
    must("cuMemCreate", CU(cuMemCreate, (Handle *, size_t, const Properties *, unsigned long long), &handle, 2 * PIECE, &properties, 0));
    must("cuMemMap", CU(cuMemMap, (Address, size_t, size_t, Handle, unsigned long long), address, 2 * PIECE, 0, handle, 0));
    must("cuMemSetAccess", CU(cuMemSetAccess, (Address, size_t, const Access *, size_t), address, 2 * PIECE, &access, 1));
    cases(plain ? "virtual memory, plain descriptor" : "virtual memory, O_DIRECT", address);
    must("cuMemUnmap", CU(cuMemUnmap, (Address, size_t), address, 2 * PIECE));
    must("cuMemRelease", CU(cuMemRelease, (Handle), handle));
    must("cuMemAddressFree", CU(cuMemAddressFree, (Address, size_t), address, 2 * PIECE));
    CUFILE(void, cuFileHandleDeregister, (void *), file);
  }
  CUFILE(Status, cuFileDriverClose_v2, (void), );
  return 0;
}
