/* The cuFile driver: open, close, properties. */
#include "state.h"

#include "../core/plan.h"

enum { VERSION = 1140, PARAMETER_PINNED_KB = 8, PARAMETER_ALLOW_COMPAT = 1, PARAMETER_FORCE_COMPAT = 2 };

static long use_count;
static unsigned in_flight;

void mx_cufile_open_driver(void) {
  if (use_count) return;
  use_count = 1;
  mx_opened("cufile-driver", 1, 0);
}

void mx_cufile_io(int change) { in_flight += (unsigned)change; }

CUfileError_t mx_cufile_leave(struct mx_call *call, int status) {
  mx_leave(call, status);
  return (CUfileError_t){.err = status, .cu_err = status == CU_FILE_CUDA_DRIVER_ERROR ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS};
}

MX_EXPORT CUfileError_t cuFileDriverOpen(void) {
  ENTER(cuFileDriverOpen);
  REFUSE_IF(!mx_settings.devices, CU_FILE_DEVICE_NOT_FOUND);
  if (use_count) use_count++;
  mx_cufile_open_driver();
  return LEAVE(CU_FILE_SUCCESS);
}

static int close_driver(void) {
  if (!use_count) return CU_FILE_DRIVER_NOT_INITIALIZED;
  if (--use_count) return CU_FILE_SUCCESS;
  if (in_flight) mx_kill("the program closes the cuFile driver with %u reads or writes in flight", in_flight);
  mx_closed("cufile-driver", 1);
  return CU_FILE_SUCCESS;
}

MX_EXPORT CUfileError_t cuFileDriverClose(void) {
  ENTER(cuFileDriverClose);
  return LEAVE(close_driver());
}

MX_EXPORT CUfileError_t cuFileDriverClose_v2(void) {
  ENTER(cuFileDriverClose_v2);
  return LEAVE(close_driver());
}

MX_EXPORT long cuFileUseCount(void) {
  struct mx_call call;
  mx_enter(&call, F_cuFileUseCount);
  return mx_leave(&call, use_count);
}

MX_EXPORT CUfileError_t cuFileGetVersion(int *version) {
  ENTER(cuFileGetVersion);
  REFUSE_IF(!version, CU_FILE_INVALID_VALUE);
  *version = VERSION;
  return LEAVE(CU_FILE_SUCCESS);
}

MX_EXPORT CUfileError_t cuFileDriverGetProperties(CUfileDrvProps_t *properties) {
  ENTER(cuFileDriverGetProperties);
  REFUSE_IF(!use_count, CU_FILE_DRIVER_NOT_INITIALIZED);
  REFUSE_IF(!properties, CU_FILE_INVALID_VALUE);
  bool direct = mx_settings.gds == MX_GDS_DIRECT;
  *properties = (CUfileDrvProps_t){
      .nvfs = {.major_version = direct ? 2 : 0, .minor_version = direct ? 25 : 0, .poll_thresh_size = 4, .max_direct_io_size = 16384},
      .max_device_cache_size = 131072,
      .per_buffer_cache_size = 1024,
      .max_device_pinned_mem_size = (unsigned)(mx_settings.registered_bytes >> 10),
  };
  /* Bit 4 is NVMe; control bit 1 allows compatibility mode. */
  properties->nvfs.dstatusflags = direct ? 1u << 4 : 0;
  properties->nvfs.dcontrolflags = mx_settings.gds == MX_GDS_REFUSED ? 0 : 1u << 1;
  return LEAVE(CU_FILE_SUCCESS);
}

/* Only before the driver is open, as the real one wants it. */
MX_EXPORT CUfileError_t cuFileDriverSetMaxPinnedMemSize(size_t kilobytes) {
  ENTER(cuFileDriverSetMaxPinnedMemSize);
  REFUSE_IF(use_count, CU_FILE_DRIVER_ALREADY_OPEN);
  REFUSE_IF(!kilobytes || kilobytes % 4, CU_FILE_DRIVER_UNSUPPORTED_LIMIT);
  mx_settings.registered_bytes = kilobytes << 10;
  return LEAVE(CU_FILE_SUCCESS);
}

MX_EXPORT CUfileError_t cuFileGetParameterSizeT(int parameter, size_t *value) {
  ENTER(cuFileGetParameterSizeT);
  REFUSE_IF(!value || parameter != PARAMETER_PINNED_KB, CU_FILE_INVALID_VALUE);
  *value = mx_settings.registered_bytes >> 10;
  return LEAVE(CU_FILE_SUCCESS);
}

MX_EXPORT CUfileError_t cuFileGetParameterBool(int parameter, bool *value) {
  ENTER(cuFileGetParameterBool);
  REFUSE_IF(!value || (parameter != PARAMETER_ALLOW_COMPAT && parameter != PARAMETER_FORCE_COMPAT), CU_FILE_INVALID_VALUE);
  *value = parameter == PARAMETER_ALLOW_COMPAT ? mx_settings.gds != MX_GDS_REFUSED : mx_settings.gds == MX_GDS_COMPAT;
  return LEAVE(CU_FILE_SUCCESS);
}
