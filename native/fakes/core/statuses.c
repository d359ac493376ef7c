#include "statuses.h"

#include <stddef.h>
#include <string.h>

static const struct mx_status statuses[] = {
#define S(family, name, value, text) {family, #name, value, text},
#include "statuses.def"
#undef S
};
static const size_t count = sizeof statuses / sizeof *statuses;

const struct mx_status *mx_status_of(enum mx_family family, long value) {
  for (size_t at = 0; at < count; at++)
    if (statuses[at].family == family && statuses[at].value == value) return &statuses[at];
  return NULL;
}

const struct mx_status *mx_status_named(enum mx_family family, const char *name) {
  for (size_t at = 0; at < count; at++)
    if (statuses[at].family == family && !strcmp(statuses[at].name, name)) return &statuses[at];
  return NULL;
}
