/* Makes the context of the device numbered in MX_TEST_DEVICE current on the thread that loads this, as another addon of a process does. */
#include <dlfcn.h>
#include <stdlib.h>

__attribute__((constructor)) static void choose(void) {
  void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
  if (cuda == NULL) abort();
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(cuda, "cuInit");
  int (*retain)(void **, int) = (int (*)(void **, int))dlsym(cuda, "cuDevicePrimaryCtxRetain");
  int (*set)(void *) = (int (*)(void *))dlsym(cuda, "cuCtxSetCurrent");
  const char *device = getenv("MX_TEST_DEVICE");
  void *context = NULL;
  if (device == NULL || init(0) != 0 || retain(&context, atoi(device)) != 0 || set(context) != 0) abort();
}
