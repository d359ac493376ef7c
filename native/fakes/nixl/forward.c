/* Finding the real library, and what the trampolines ask before they go on to it. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../core/call.h"
#include "real.h"

enum { EXIT_MISSPELT = 64, FIRST = F_nixl_capi_agent_make_connection };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void *functions[MX_FUNCTIONS];
static void *library;

static void open_library(void) {
  const char *path = getenv("MX_FAKES_NIXL_LIBRARY");
  library = path && *path == '/' ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  if (!library) {
    fprintf(stderr, "mx-fakes: MX_FAKES_NIXL_LIBRARY: %s\n", path && *path == '/' ? dlerror() : "must be the absolute path of the real libnixl_capi.so");
    _exit(EXIT_MISSPELT);
  }
  for (int function = FIRST; function < MX_FUNCTIONS; function++) functions[function] = dlsym(library, mx_function_name(function));
}

void *mx_nixl_real(enum mx_function function) {
  pthread_once(&once, open_library);
  if (!functions[function]) {
    fprintf(stderr, "mx-fakes: MX_FAKES_NIXL_LIBRARY: the real library has no %s\n", mx_function_name(function));
    _exit(EXIT_MISSPELT);
  }
  return functions[function];
}

struct way {
  void *target; /* NULL: answer `status` instead */
  long status;
};

struct way mx_nixl_forward(unsigned place) __attribute__((visibility("hidden")));
struct way mx_nixl_forward(unsigned place) {
  struct mx_call call;
  enum mx_function function = FIRST + place;
  bool fails = mx_enter(&call, function);
  mx_facts(&call, "%s", fails ? "" : "forwarded");
  mx_leave(&call, call.planned);
  return fails ? (struct way){NULL, call.planned} : (struct way){mx_nixl_real(function), 0};
}
