/*
 * Preloaded into Node: puts a page right above malloc's heap when NIXL's library is opened, as V8's code does in one start of a hundred, so that
 * the heap cannot grow in place. At the end it prints on stderr by how many bytes the end of the heap has moved since then.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char *end_before;

void *dlopen(const char *name, int flags) {
  void *(*real)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
  if (end_before == NULL && name != NULL && strstr(name, "libnixl_capi") != NULL) {
    char *end = sbrk(0);
    if (mmap(end, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == end) end_before = end;
  }
  return real(name, flags);
}

__attribute__((destructor)) static void tell(void) {
  if (end_before != NULL) fprintf(stderr, "heap moved by %ld\n", (long)((char *)sbrk(0) - end_before));
}
