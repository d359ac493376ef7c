#include "ranges.h"

#include <inttypes.h>
#include <stdlib.h>

#include "ledger.h"

struct mx_range {
  struct mx_range *next, **link;
  enum mx_hold kind;
  uint64_t address;
  size_t size;
  const char *why;
};

static struct mx_range *held;

struct mx_range *mx_hold(enum mx_hold kind, uint64_t address, size_t size, const char *why) {
  struct mx_range *made = malloc(sizeof *made);
  *made = (struct mx_range){.next = held, .link = &held, .kind = kind, .address = address, .size = size, .why = why};
  if (held) held->link = &made->next;
  held = made;
  return made;
}

void mx_let_go(struct mx_range *range) {
  *range->link = range->next;
  if (range->next) range->next->link = range->link;
  free(range);
}

static void check(enum mx_hold kind, const char *what, uint64_t address, size_t size) {
  for (struct mx_range *at = held; at; at = at->next)
    if (at->kind == kind && at->size && at->address < address + size && address < at->address + at->size)
      mx_kill("the program %s 0x%" PRIx64 " (%zu bytes) while 0x%" PRIx64 " (%zu bytes) %s", what, address, size, at->address, at->size, at->why);
}

void mx_must_be_free(const char *what, uint64_t address, size_t size) {
  check(MX_MOVING, what, address, size);
  check(MX_REGISTERED, what, address, size);
}

void mx_must_be_still(const char *what, uint64_t address, size_t size) { check(MX_MOVING, what, address, size); }
