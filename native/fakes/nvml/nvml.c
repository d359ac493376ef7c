/* NVIDIA's management library: UCX's CUDA modules do not load without it. There is nothing to manage here. */
#define EXPORT __attribute__((visibility("default")))

enum { SUCCESS = 0, NOT_SUPPORTED = 3 };

EXPORT const char *nvmlErrorString(int error) { return error == SUCCESS ? "success" : "not supported by the stand-in"; }

#define UNSUPPORTED(name) \
  EXPORT int name(void) { return NOT_SUPPORTED; }

UNSUPPORTED(nvmlInit_v2)
UNSUPPORTED(nvmlShutdown)
UNSUPPORTED(nvmlDeviceGetCount_v2)
UNSUPPORTED(nvmlDeviceGetHandleByIndex_v2)
UNSUPPORTED(nvmlDeviceGetPciInfo_v3)
UNSUPPORTED(nvmlDeviceGetFieldValues)
UNSUPPORTED(nvmlDeviceGetGpuFabricInfo)
UNSUPPORTED(nvmlDeviceGetGpuFabricInfoV)
UNSUPPORTED(nvmlDeviceGetNvLinkRemotePciInfo_v2)
