/* What the programs share: CUDA's driver interface found at run time, and answers as lines of JSON on descriptor 3 (stdout where there is none). */
#ifndef MX_ASK_H
#define MX_ASK_H
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long Address;
typedef unsigned long long Handle;
typedef struct { int type, id; } Location;
/* CUmemAllocationProp and CUmemAccessDesc of cuda.h, version 12. */
typedef struct {
  int type, handle_types;
  Location location;
  void *unused;
  struct { unsigned char compression, rdma; unsigned short usage; unsigned char reserved[4]; } flags;
} Properties;
typedef struct { Location location; int flags; } Access;

static void *cuda;
/* Decided before anything else is opened, as that could take the number. */
static int answers;

/* Ends the program with exit code 69 where a library or function is missing: the step is then skipped. */
static __attribute__((noreturn, format(printf, 1, 2))) void unavailable(const char *format, ...) {
  va_list list;
  va_start(list, format);
  vfprintf(stderr, format, list);
  va_end(list);
  fputc('\n', stderr);
  exit(69);
}

static void *find(void *library, const char *name) {
  void *function = dlsym(library, name);
  if (function == NULL) unavailable("the library has no function %s", name);
  return function;
}

/* A call of CUDA's driver by name; the result is its status. */
#define CU(name, types, ...) (((int(*) types)find(cuda, #name))(__VA_ARGS__))

static const char *status_name(int status) {
  static char number[32];
  const char *name = NULL;
  if (status == 0) return "ok";
  if (CU(cuGetErrorName, (int, const char **), status, &name) == 0 && name != NULL) return name;
  snprintf(number, sizeof number, "status %d", status);
  return number;
}

/* One answer: `what` and the members of a JSON object. */
static __attribute__((format(printf, 2, 3))) void answer(const char *what, const char *format, ...) {
  char line[4096];
  int length = snprintf(line, sizeof line, "{\"what\":\"%s\",", what);
  va_list list;
  va_start(list, format);
  length += vsnprintf(line + length, sizeof line - length - 3, format, list);
  va_end(list);
  if (length > (int)sizeof line - 3) length = sizeof line - 3;
  line[length++] = '}';
  line[length++] = '\n';
  if (write(answers, line, length) != length) exit(74);
}

static double now_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

/* Ends the program with exit code 1 where a call that the rest rests on fails. */
static void must(const char *what, int status) {
  if (status == 0) return;
  fprintf(stderr, "%s: %s\n", what, status_name(status));
  exit(1);
}

/* Opens the driver, and makes the primary context of the device current in this thread. */
static void *open_cuda(int device) {
  const char *path = getenv("MX_CUDA_LIBRARY");
  void *context = NULL;
  answers = fcntl(3, F_GETFD) == -1 ? 1 : 3;
  cuda = dlopen(path != NULL && *path != 0 ? path : "libcuda.so.1", RTLD_NOW);
  if (cuda == NULL) unavailable("%s", dlerror());
  must("cuInit", CU(cuInit, (unsigned), 0));
  must("cuDevicePrimaryCtxRetain", CU(cuDevicePrimaryCtxRetain, (void **, int), &context, device));
  must("cuCtxSetCurrent", CU(cuCtxSetCurrent, (void *), context));
  return context;
}

static __attribute__((unused)) size_t free_bytes(void) {
  size_t unused_bytes = 0, total_bytes = 0;
  must("cuMemGetInfo", CU(cuMemGetInfo_v2, (size_t *, size_t *), &unused_bytes, &total_bytes));
  return unused_bytes;
}

static __attribute__((unused)) Properties device_memory(int device, int handle_types, int rdma) {
  Properties properties = {.type = 1, .handle_types = handle_types, .location = {1, device}};
  properties.flags.rdma = (unsigned char)rdma;
  return properties;
}

#endif
