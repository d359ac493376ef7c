#include "context.h"

#include <stdlib.h>

#include "host.h"
#include "ledger.h"
#include "memory.h"
#include "plan.h"
#include "stream.h"

enum { MAX_DEVICES = 16, MAX_CONTEXTS = 4096, MAX_DEPTH = 64 };

static bool initialised;
static struct mx_context *primary[MAX_DEVICES];
/* Contexts are never freed, so that a stale handle is recognised. */
static struct mx_context *known[MAX_CONTEXTS];
static unsigned known_count;

static _Thread_local struct {
  CUcontext stack[MAX_DEPTH];
  int depth;
} current;

CUresult mx_init(void) {
  if (!mx_settings.devices) return CUDA_ERROR_NO_DEVICE;
  initialised = true;
  return CUDA_SUCCESS;
}

bool mx_initialised(void) { return initialised; }

CUresult mx_check_device(int device) {
  if (!initialised) return CUDA_ERROR_NOT_INITIALIZED;
  return device >= 0 && (size_t)device < mx_settings.devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

/* The ledger's name for the n-th retain that is open at one time. */
static uint64_t retain_name(int device, unsigned n) { return (uint64_t)device << 32 | n; }

static CUresult activate(int device) {
  CUresult status = mx_check_device(device);
  if (status || primary[device]) return status;
  if (known_count == MAX_CONTEXTS) return CUDA_ERROR_OUT_OF_MEMORY;
  struct mx_context *made = malloc(sizeof *made);
  *made = (struct mx_context){.device = device, .id = known_count + 1, .alive = true};
  known[known_count++] = made;
  primary[device] = made;
  return CUDA_SUCCESS;
}

CUresult mx_primary_keep(CUcontext *context, int device) {
  CUresult status = activate(device);
  if (status) return status;
  primary[device]->kept = true;
  *context = primary[device];
  return CUDA_SUCCESS;
}

CUresult mx_primary_retain(CUcontext *context, int device) {
  CUresult status = activate(device);
  if (status) return status;
  mx_opened("context", retain_name(device, ++primary[device]->retains), 0);
  *context = primary[device];
  return CUDA_SUCCESS;
}

CUresult mx_primary_release(int device) {
  CUresult status = mx_check_device(device);
  if (status) return status;
  struct mx_context *context = primary[device];
  if (!context || !context->retains) return CUDA_ERROR_INVALID_CONTEXT;
  mx_closed("context", retain_name(device, context->retains));
  if (--context->retains || context->kept) return CUDA_SUCCESS;
  mx_streams_end(context);
  mx_host_free_of_context(context);
  mx_free_of_context(context);
  context->alive = false;
  primary[device] = NULL;
  return CUDA_SUCCESS;
}

bool mx_primary_active(int device) { return primary[device] != NULL; }

bool mx_context_known(CUcontext context) {
  for (unsigned at = 0; at < known_count; at++)
    if (known[at] == context) return true;
  return false;
}

CUcontext mx_current(void) { return current.depth ? current.stack[current.depth - 1] : NULL; }

void mx_set_current(CUcontext context) {
  if (current.depth) current.depth--;
  if (context) current.stack[current.depth++] = context;
}

CUresult mx_push_current(CUcontext context) {
  if (current.depth == MAX_DEPTH) return CUDA_ERROR_OUT_OF_MEMORY;
  current.stack[current.depth++] = context;
  return CUDA_SUCCESS;
}

CUresult mx_pop_current(CUcontext *context) {
  if (!current.depth) return CUDA_ERROR_INVALID_CONTEXT;
  *context = current.stack[--current.depth];
  return CUDA_SUCCESS;
}

CUresult mx_need_context(CUcontext *context) {
  if (!initialised) return CUDA_ERROR_NOT_INITIALIZED;
  *context = mx_current();
  if (!*context) return CUDA_ERROR_INVALID_CONTEXT;
  return (*context)->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}
