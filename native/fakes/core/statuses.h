/* Names of statuses, for plans and for cuGetErrorName and its like. */
#ifndef MX_FAKES_STATUSES_H
#define MX_FAKES_STATUSES_H

#include <stdbool.h>

#include "functions.h"

struct mx_status {
  enum mx_family family;
  const char *name;
  long value;
  const char *text;
};

/* The status of a family with this value, or NULL. */
const struct mx_status *mx_status_of(enum mx_family family, long value);

/* The status of a family with this name, or NULL. */
const struct mx_status *mx_status_named(enum mx_family family, const char *name);

#endif
