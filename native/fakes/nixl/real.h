/* The real library behind this one. */
#ifndef MX_FAKES_NIXL_REAL_H
#define MX_FAKES_NIXL_REAL_H

#include "../core/functions.h"

/* The real function of this name. Ends the process (exit code 64) where MX_FAKES_NIXL_LIBRARY does not lead to one. */
void *mx_nixl_real(enum mx_function function);

#endif
