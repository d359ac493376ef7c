/* The driver itself: start, version, names of statuses, and looking functions up. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "../core/statuses.h"
#include "entry.h"

enum { DRIVER_VERSION = 12090 };
enum { SYMBOL_FOUND = 0, SYMBOL_NOT_FOUND = 1 };

MX_EXPORT CUresult cuInit(unsigned flags) {
  ENTER(cuInit);
  REFUSE_IF(flags, CUDA_ERROR_INVALID_VALUE);
  return LEAVE(mx_init());
}

MX_EXPORT CUresult cuDriverGetVersion(int *version) {
  ENTER(cuDriverGetVersion);
  REFUSE_IF(!version, CUDA_ERROR_INVALID_VALUE);
  *version = DRIVER_VERSION;
  return LEAVE(CUDA_SUCCESS);
}

MX_EXPORT CUresult cuGetErrorName(CUresult error, const char **name) {
  ENTER(cuGetErrorName);
  const struct mx_status *status = mx_status_of(MX_CUDA, error);
  REFUSE_IF(!name, CUDA_ERROR_INVALID_VALUE);
  *name = status ? status->name : NULL;
  return LEAVE(status ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

MX_EXPORT CUresult cuGetErrorString(CUresult error, const char **text) {
  ENTER(cuGetErrorString);
  const struct mx_status *status = mx_status_of(MX_CUDA, error);
  REFUSE_IF(!text, CUDA_ERROR_INVALID_VALUE);
  *text = status ? status->text : NULL;
  return LEAVE(status ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

MX_EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *result) {
  ENTER(cuGetProcAddress_v2);
  (void)version, (void)flags;
  REFUSE_IF(!symbol || !function, CUDA_ERROR_INVALID_VALUE);
  mx_facts(&call, "symbol=%.60s", symbol);
  Dl_info own;
  void *library = dladdr((void *)cuInit, &own) ? dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
  char newer[128];
  snprintf(newer, sizeof newer, "%.100s_v2", symbol);
  *function = library && strncmp(symbol, "cu", 2) == 0 ? dlsym(library, newer) : NULL;
  if (library && !*function && strncmp(symbol, "cu", 2) == 0) *function = dlsym(library, symbol);
  if (library) dlclose(library);
  if (result) *result = *function ? SYMBOL_FOUND : SYMBOL_NOT_FOUND;
  /* The real one succeeds for an unknown symbol where it can tell so by the result. */
  return LEAVE(*function || result ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
}
