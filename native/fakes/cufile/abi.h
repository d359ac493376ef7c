/* The part of cuFile's interface that the stand-in speaks. */
#ifndef MX_FAKES_CUFILE_ABI_H
#define MX_FAKES_CUFILE_ABI_H

#include <stdbool.h>
#include <sys/types.h>

#include "../cuda/abi.h"

enum {
#define S(family, name, value, text) MX_STATUS_##family(name, value)
#define MX_STATUS_MX_CUDA(name, value)
#define MX_STATUS_MX_CUDART(name, value)
#define MX_STATUS_MX_CUFILE(name, value) name = value,
#define MX_STATUS_MX_NIXL(name, value)
#include "../core/statuses.def"
#undef S
#undef MX_STATUS_MX_CUDA
#undef MX_STATUS_MX_CUDART
#undef MX_STATUS_MX_CUFILE
#undef MX_STATUS_MX_NIXL
};

typedef struct {
  int err;
  CUresult cu_err;
} CUfileError_t;

enum { CU_FILE_HANDLE_TYPE_OPAQUE_FD = 1 };

typedef struct {
  int type;
  union {
    int fd;
    void *handle;
  } handle;
  const void *fs_ops;
} CUfileDescr_t;

typedef struct mx_file *CUfileHandle_t;

typedef struct {
  struct {
    unsigned major_version, minor_version;
    size_t poll_thresh_size, max_direct_io_size;
    unsigned dstatusflags, dcontrolflags;
  } nvfs;
  unsigned fflags;
  unsigned max_device_cache_size, per_buffer_cache_size, max_device_pinned_mem_size; /* KiB */
  unsigned max_batch_io_size, max_batch_io_timeout_msecs;
} CUfileDrvProps_t;

CUfileError_t cuFileDriverOpen(void);
CUfileError_t cuFileDriverClose_v2(void);
CUfileError_t cuFileDriverClose(void);
long cuFileUseCount(void);
CUfileError_t cuFileGetVersion(int *version);
CUfileError_t cuFileDriverGetProperties(CUfileDrvProps_t *properties);
CUfileError_t cuFileDriverSetMaxPinnedMemSize(size_t kilobytes);
CUfileError_t cuFileGetParameterSizeT(int parameter, size_t *value);
CUfileError_t cuFileGetParameterBool(int parameter, bool *value);
CUfileError_t cuFileHandleRegister(CUfileHandle_t *handle, CUfileDescr_t *description);
void cuFileHandleDeregister(CUfileHandle_t handle);
CUfileError_t cuFileBufRegister(const void *base, size_t size, int flags);
CUfileError_t cuFileBufDeregister(const void *base);
ssize_t cuFileRead(CUfileHandle_t handle, void *base, size_t size, off_t file_offset, off_t buffer_offset);
ssize_t cuFileWrite(CUfileHandle_t handle, const void *base, size_t size, off_t file_offset, off_t buffer_offset);

#endif
