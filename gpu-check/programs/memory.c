/* Device memory by the virtual-memory interface: what handles it gives, what it costs, which ranges can be given to a network card. */
#include "ask.h"

enum { MIB = 1 << 20, POSIX = 1, FABRIC = 8, READ_WRITE = 3, DMA_BUF = 1 };

static int device;

static void attributes(void) {
  static const struct { int number; const char *name; } asked[] = {
      {102, "virtualMemory"}, {103, "posixHandles"}, {128, "fabricHandles"}, {110, "gpuDirectRdmaWithVirtualMemory"},
      {116, "gpuDirectRdma"}, {124, "dmaBuf"},       {99, "hostRegister"},   {134, "hostNumaNode"},
  };
  for (size_t row = 0; row < sizeof asked / sizeof *asked; row++) {
    int value = -1, status = CU(cuDeviceGetAttribute, (int *, int, int), &value, asked[row].number, device);
    answer("attribute", "\"name\":\"%s\",\"status\":\"%s\",\"value\":%d", asked[row].name, status_name(status), value);
  }
}

/* What each combination of handle types and the RDMA flag answers, from granularity to export. */
static void handles(void) {
  static const int types[] = {0, POSIX, FABRIC, POSIX | FABRIC};
  for (int row = 0; row < 8; row++) {
    int type = types[row / 2], rdma = row % 2;
    Properties properties = device_memory(device, type, rdma);
    size_t least = 0, recommended = 0;
    Handle handle = 0;
    int asked = CU(cuMemGetAllocationGranularity, (size_t *, const Properties *, int), &least, &properties, 0);
    CU(cuMemGetAllocationGranularity, (size_t *, const Properties *, int), &recommended, &properties, 1);
    int made = CU(cuMemCreate, (Handle *, size_t, const Properties *, unsigned long long), &handle, 2 * MIB, &properties, 0);
    answer("handle", "\"types\":%d,\"rdma\":%d,\"granularity\":%zu,\"recommended\":%zu,\"asked\":\"%s\",\"made\":\"%s\"", type, rdma, least,
           recommended, asked == 0 ? "ok" : status_name(asked), status_name(made));
    if (made != 0) continue;
    for (int export = POSIX; export <= FABRIC; export *= 8) {
      unsigned char shared[64] = {0};
      if ((type & export) == 0) continue;
      int status = CU(cuMemExportToShareableHandle, (void *, Handle, int, unsigned long long), shared, handle, export, 0);
      answer("export", "\"types\":%d,\"rdma\":%d,\"as\":%d,\"status\":\"%s\"", type, rdma, export, status_name(status));
      if (status == 0 && export == POSIX) close(*(int *)shared);
    }
    CU(cuMemRelease, (Handle), handle);
  }
}

static void reserve(void) {
  for (int shift = 40; shift <= 46; shift += 2) {
    Address address = 0;
    double begin = now_ms();
    int status = CU(cuMemAddressReserve, (Address *, size_t, size_t, Address, unsigned long long), &address, (size_t)1 << shift, 2 * MIB, 0, 0);
    answer("reserve", "\"bytes\":%zu,\"status\":\"%s\",\"ms\":%.3f", (size_t)1 << shift, status_name(status), now_ms() - begin);
    if (status == 0) CU(cuMemAddressFree, (Address, size_t), address, (size_t)1 << shift);
  }
}

/* One handle mapped at `address`; the statuses and times of the steps. */
static int map(Address address, size_t bytes, int types, Handle *handle, double ms[3]) {
  Properties properties = device_memory(device, types, 1);
  Access access = {.location = {1, device}, .flags = READ_WRITE};
  double begin = now_ms();
  int status = CU(cuMemCreate, (Handle *, size_t, const Properties *, unsigned long long), handle, bytes, &properties, 0);
  ms[0] = now_ms() - begin;
  if (status != 0) return status;
  begin = now_ms();
  status = CU(cuMemMap, (Address, size_t, size_t, Handle, unsigned long long), address, bytes, 0, *handle, 0);
  ms[1] = now_ms() - begin;
  if (status != 0) {
    CU(cuMemRelease, (Handle), *handle);
    return status;
  }
  begin = now_ms();
  status = CU(cuMemSetAccess, (Address, size_t, const Access *, size_t), address, bytes, &access, 1);
  ms[2] = now_ms() - begin;
  return status;
}

static void unmap(Address address, size_t bytes, Handle handle) {
  must("cuMemUnmap", CU(cuMemUnmap, (Address, size_t), address, bytes));
  must("cuMemRelease", CU(cuMemRelease, (Handle), handle));
}

static void times(void) {
  for (size_t bytes = 2 * MIB; bytes <= (size_t)64 << 30; bytes *= 32) {
    Address address = 0;
    Handle handle = 0;
    double ms[3] = {0};
    size_t before = free_bytes();
    if (bytes > before / 2) {
      answer("mapping", "\"bytes\":%zu,\"status\":\"not tried: %zu bytes are free\"", bytes, before);
      continue;
    }
    must("cuMemAddressReserve", CU(cuMemAddressReserve, (Address *, size_t, size_t, Address, unsigned long long), &address, bytes, 2 * MIB, 0, 0));
    int status = map(address, bytes, POSIX, &handle, ms);
    double begin = now_ms();
    if (status == 0) unmap(address, bytes, handle);
    answer("mapping", "\"bytes\":%zu,\"status\":\"%s\",\"createMs\":%.3f,\"mapMs\":%.3f,\"accessMs\":%.3f,\"unmapMs\":%.3f", bytes, status_name(status),
           ms[0], ms[1], ms[2], now_ms() - begin);
    CU(cuMemAddressFree, (Address, size_t), address, bytes);
    answer("leak", "\"bytes\":%zu,\"notGivenBackBytes\":%lld", bytes, (long long)before - (long long)free_bytes());
  }
}

/* Whether one handle, and two side by side, are one region for a network card. */
static void dma_buf(void) {
  Address address = 0;
  Handle handle[2] = {0};
  double ms[3];
  must("cuMemAddressReserve", CU(cuMemAddressReserve, (Address *, size_t, size_t, Address, unsigned long long), &address, 4 * MIB, 2 * MIB, 0, 0));
  for (int row = 0; row < 2; row++) must("mapping 2 MiB", map(address + row * 2 * MIB, 2 * MIB, POSIX, &handle[row], ms));
  for (int handles = 1; handles <= 2; handles++) {
    for (int flags = 0; flags <= 1; flags++) {
      int fd = -1;
      int status = CU(cuMemGetHandleForAddressRange, (void *, Address, size_t, int, unsigned long long), &fd, address, (size_t)handles * 2 * MIB, DMA_BUF, flags);
      answer("dmaBuf", "\"handles\":%d,\"flags\":%d,\"status\":\"%s\"", handles, flags, status_name(status));
      if (status == 0) close(fd);
    }
  }
  for (int row = 0; row < 2; row++) unmap(address + row * 2 * MIB, 2 * MIB, handle[row]);
  CU(cuMemAddressFree, (Address, size_t), address, 4 * MIB);
}

int main(int count, char **words) {
  device = count > 1 ? atoi(words[1]) : 0;
  open_cuda(device);
  attributes();
  handles();
  reserve();
  dma_buf();
  times();
  return 0;
}
