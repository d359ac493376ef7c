/* Devices and what they can do. */
#include <stdio.h>
#include <string.h>

#include "../core/memory.h"
#include "../core/plan.h"
#include "entry.h"

MX_EXPORT CUresult cuDeviceGetCount(int *count) {
  ENTER_INITIALISED(cuDeviceGetCount);
  REFUSE_IF(!count, CUDA_ERROR_INVALID_VALUE);
  *count = (int)mx_settings.devices;
  return LEAVE(CUDA_SUCCESS);
}

MX_EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  ENTER(cuDeviceGet);
  CUresult status = mx_check_device(ordinal);
  REFUSE_IF(status, status);
  REFUSE_IF(!device, CUDA_ERROR_INVALID_VALUE);
  *device = ordinal;
  return LEAVE(CUDA_SUCCESS);
}

MX_EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
  ENTER(cuDeviceGetName);
  CUresult status = mx_check_device(device);
  REFUSE_IF(status, status);
  REFUSE_IF(!name || length <= 0, CUDA_ERROR_INVALID_VALUE);
  snprintf(name, (size_t)length, "Stand-in GPU %d", device);
  return LEAVE(CUDA_SUCCESS);
}

static CUresult get_uuid(CUuuid *uuid, CUdevice device) {
  CUresult status = mx_check_device(device);
  if (status) return status;
  if (!uuid) return CUDA_ERROR_INVALID_VALUE;
  memcpy(uuid->bytes, "mx-stand-in-gpu\0", 16);
  uuid->bytes[15] = (char)device;
  return CUDA_SUCCESS;
}

MX_EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
  ENTER(cuDeviceGetUuid);
  return LEAVE(get_uuid(uuid, device));
}

MX_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
  ENTER(cuDeviceGetUuid_v2);
  return LEAVE(get_uuid(uuid, device));
}

MX_EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  ENTER(cuDeviceTotalMem_v2);
  CUresult status = mx_check_device(device);
  REFUSE_IF(status, status);
  REFUSE_IF(!bytes, CUDA_ERROR_INVALID_VALUE);
  *bytes = mx_settings.device_bytes;
  return LEAVE(CUDA_SUCCESS);
}

MX_EXPORT CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice device) {
  ENTER(cuDeviceGetPCIBusId);
  CUresult status = mx_check_device(device);
  REFUSE_IF(status, status);
  REFUSE_IF(!id || length < 13, CUDA_ERROR_INVALID_VALUE);
  snprintf(id, (size_t)length, "0000:%02x:00.0", device + 1);
  return LEAVE(CUDA_SUCCESS);
}

static int attribute_value(int attribute, CUdevice device) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: return 1024;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: return 32;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return 108;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: return device + 1;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return 9;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING: return 100;
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED: return mx_settings.dmabuf != MX_DMABUF_NONE;
    /* Says what the hardware could: creating such a handle may still be not permitted. */
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED: return mx_settings.fabric != MX_FABRIC_NOT_SUPPORTED;
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED: return 1;
    default: return 0;
  }
}

MX_EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
  ENTER(cuDeviceGetAttribute);
  CUresult status = mx_check_device(device);
  REFUSE_IF(status, status);
  REFUSE_IF(!value || attribute < 1 || attribute > CU_DEVICE_ATTRIBUTE_MAX, CUDA_ERROR_INVALID_VALUE);
  *value = attribute_value(attribute, device);
  return LEAVE(CUDA_SUCCESS);
}
