/* The driver's state: initialised or not, each device's primary context, and the stack of current contexts of each thread. Lock held. */
#ifndef MX_FAKES_CONTEXT_H
#define MX_FAKES_CONTEXT_H

#include <stdbool.h>

#include "../cuda/abi.h"

struct mx_context {
  int device;
  unsigned retains;
  bool kept; /* by the runtime, until the process ends */
  unsigned long long id;
  bool alive;
};

CUresult mx_init(void);
bool mx_initialised(void);

/* CUDA_ERROR_INVALID_DEVICE where there is no such device, NOT_INITIALIZED before cuInit. */
CUresult mx_check_device(int device);

CUresult mx_primary_retain(CUcontext *context, int device);
CUresult mx_primary_release(int device);

/* The runtime's own use of the context: it never gives it back, and the ledger does not count it. */
CUresult mx_primary_keep(CUcontext *context, int device);

bool mx_primary_active(int device);

/* Whether the handle was ever given out; a context that ended is known and not alive. */
bool mx_context_known(CUcontext context);

/* The top of this thread's stack; NULL when empty. */
CUcontext mx_current(void);
void mx_set_current(CUcontext context);
CUresult mx_push_current(CUcontext context);
CUresult mx_pop_current(CUcontext *context);

/* INVALID_CONTEXT where this thread has none, CONTEXT_IS_DESTROYED where it ended. */
CUresult mx_need_context(CUcontext *context);

#endif
