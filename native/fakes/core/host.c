#define _GNU_SOURCE
#include "host.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "ledger.h"
#include "ranges.h"

static struct mx_host *hosts;
static unsigned long long serial;

static void add(uintptr_t address, size_t size, bool registered, CUcontext context) {
  struct mx_host *made = malloc(sizeof *made);
  *made = (struct mx_host){.next = hosts, .address = address, .size = size, .registered = registered, .context = context, .serial = ++serial};
  hosts = made;
  mx_opened(registered ? "host-registration" : "pinned", address, size);
}

static void end(struct mx_host *host) {
  if (host->registered) mx_must_be_still("unregisters", host->address, host->size);
  else mx_must_be_free("frees", host->address, host->size);
  struct mx_host **at = &hosts;
  while (*at != host) at = &(*at)->next;
  *at = host->next;
  mx_closed(host->registered ? "host-registration" : "pinned", host->address);
  if (!host->registered) munmap((void *)host->address, host->size);
  free(host);
}

CUresult mx_host_allocate(void **address, size_t size, CUcontext context) {
  if (!size) return CUDA_ERROR_INVALID_VALUE;
  void *made = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  add((uintptr_t)made, size, false, context);
  *address = made;
  return CUDA_SUCCESS;
}

CUresult mx_host_free(void *address) {
  struct mx_host *host = mx_host_at((uintptr_t)address);
  if (!host || host->registered || host->address != (uintptr_t)address) return CUDA_ERROR_INVALID_VALUE;
  end(host);
  return CUDA_SUCCESS;
}

/* Touches nothing: a page that is not there is found by asking the kernel. */
static bool mapped(uintptr_t address, size_t size) {
  uintptr_t begin = address / 4096 * 4096, whole = (address + size - begin + 4095) / 4096;
  unsigned char *seen = malloc(whole);
  bool all = mincore((void *)begin, whole * 4096, seen) == 0;
  free(seen);
  return all;
}

CUresult mx_host_register(void *address, size_t size, CUcontext context) {
  if (!address || !size || !mapped((uintptr_t)address, size)) return CUDA_ERROR_INVALID_VALUE;
  for (struct mx_host *at = hosts; at; at = at->next)
    if (at->address < (uintptr_t)address + size && (uintptr_t)address < at->address + at->size) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  add((uintptr_t)address, size, true, context);
  return CUDA_SUCCESS;
}

CUresult mx_host_unregister(void *address) {
  struct mx_host *host = mx_host_at((uintptr_t)address);
  if (!host || !host->registered || host->address != (uintptr_t)address) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  end(host);
  return CUDA_SUCCESS;
}

void mx_host_free_of_context(CUcontext context) {
  for (struct mx_host *at = hosts, *next; at; at = next) {
    next = at->next;
    if (at->context == context) end(at);
  }
}

struct mx_host *mx_host_at(uintptr_t address) {
  for (struct mx_host *at = hosts; at; at = at->next)
    if (address >= at->address && address - at->address < at->size) return at;
  return NULL;
}
