/* What shall go wrong, and what the machine looks like: read once from MX_FAKES when the first stand-in is loaded. */
#ifndef MX_FAKES_PLAN_H
#define MX_FAKES_PLAN_H

#include <stdbool.h>
#include <stddef.h>

#include "functions.h"

enum mx_fabric { MX_FABRIC_NOT_SUPPORTED, MX_FABRIC_NOT_PERMITTED, MX_FABRIC_SUPPORTED };
enum mx_dmabuf { MX_DMABUF_ONE_HANDLE, MX_DMABUF_ANY, MX_DMABUF_NONE, MX_DMABUF_HOLES };
enum mx_gds { MX_GDS_DIRECT, MX_GDS_COMPAT, MX_GDS_REFUSED };

struct mx_settings {
  size_t devices, device_bytes, reserve_bytes, registered_bytes, async_ms, seed;
  enum mx_fabric fabric;
  enum mx_dmabuf dmabuf;
  enum mx_gds gds;
};

extern struct mx_settings mx_settings;

/* What is planned for one call. */
struct mx_fault {
  bool hang, fails, shortened;
  size_t block_ms, short_bytes;
  long status;
};

/* What is planned for the n-th call (from 1) of a function in this process. */
struct mx_fault mx_planned(enum mx_function function, unsigned n);

#endif
