#include "functions.h"

#include <string.h>

#define F(name) #name,
#define T(name) #name,
static const char *const names[] = {
#include "../cuda/functions.def"
#include "../cudart/functions.def"
#include "../cufile/functions.def"
#include "../nixl/functions.def"
};
#undef F
#undef T

const char *mx_function_name(enum mx_function function) { return names[function]; }

enum mx_family mx_family_of(enum mx_function function) {
  const char *name = names[function];
  if (!strncmp(name, "cuFile", 6)) return MX_CUFILE;
  if (!strncmp(name, "cuda", 4)) return MX_CUDART;
  if (!strncmp(name, "nixl_", 5)) return MX_NIXL;
  return MX_CUDA;
}

enum mx_function mx_function_named(const char *name) {
  for (int function = 0; function < MX_FUNCTIONS; function++)
    if (!strcmp(names[function], name)) return function;
  return MX_FUNCTIONS;
}
