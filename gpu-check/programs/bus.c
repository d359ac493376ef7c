/* Copies from host memory to the device: kind of memory, size of a copy, number of streams, offset of the source. */
#include "ask.h"

enum { MIB = 1 << 20 };

static Address target;
static size_t total;
static const char *kind;

static void sweep(char *source, size_t piece, int streams, size_t offset) {
  void *stream[4] = {0};
  for (int row = 0; row < streams; row++) must("cuStreamCreate", CU(cuStreamCreate, (void **, unsigned), &stream[row], 1));
  double best = 1e30;
  for (int round = 0; round < 3; round++) {
    double begin = now_ms();
    size_t pieces = 0;
    for (size_t at = 0; at + piece <= total; at += piece, pieces++) {
      must("cuMemcpyHtoDAsync", CU(cuMemcpyHtoDAsync_v2, (Address, const void *, size_t, void *), target + at, source + offset + at, piece, stream[pieces % streams]));
    }
    for (int row = 0; row < streams; row++) must("cuStreamSynchronize", CU(cuStreamSynchronize, (void *), stream[row]));
    double ms = now_ms() - begin;
    if (ms < best) best = ms;
  }
  answer("copy", "\"memory\":\"%s\",\"pieceBytes\":%zu,\"streams\":%d,\"sourceOffset\":%zu,\"gigabytesPerSecond\":%.2f", kind, piece, streams, offset,
         (double)(total / piece * piece) / best / 1e6);
  for (int row = 0; row < streams; row++) CU(cuStreamDestroy_v2, (void *), stream[row]);
}

static void sweeps(char *source) {
  for (size_t piece = 64 << 10; piece <= total; piece *= 8) {
    for (int streams = 1; streams <= 4; streams *= 2) sweep(source, piece, streams, 0);
  }
  sweep(source, 16 * MIB < total ? 16 * MIB : total, 1, 1);
}

/* How long the thread sleeps after the end of a small copy. */
static void wake(char *source) {
  void *stream = NULL, *event = NULL;
  must("cuStreamCreate", CU(cuStreamCreate, (void **, unsigned), &stream, 1));
  for (unsigned flags = 2; flags <= 3; flags++) {
    must("cuEventCreate", CU(cuEventCreate, (void **, unsigned), &event, flags));
    double begin = now_ms();
    for (int round = 0; round < 200; round++) {
      CU(cuMemcpyHtoDAsync_v2, (Address, const void *, size_t, void *), target, source, 4096, stream);
      CU(cuEventRecord, (void *, void *), event, stream);
      must("cuEventSynchronize", CU(cuEventSynchronize, (void *), event));
    }
    answer("wake", "\"wait\":\"%s\",\"microseconds\":%.1f", flags == 3 ? "sleeping" : "spinning", (now_ms() - begin) * 1e3 / 200);
    CU(cuEventDestroy_v2, (void *), event);
  }
  CU(cuStreamDestroy_v2, (void *), stream);
}

int main(int count, char **words) {
  int device = count > 1 ? atoi(words[1]) : 0;
  total = (count > 2 ? strtoull(words[2], NULL, 10) : 256) * MIB;
  open_cuda(device);
  must("cuMemAlloc", CU(cuMemAlloc_v2, (Address *, size_t), &target, total));
  void *memory = NULL;
  double begin = now_ms();
  must("cuMemHostAlloc", CU(cuMemHostAlloc, (void **, size_t, unsigned), &memory, total + MIB, 0));
  answer("pin", "\"memory\":\"cuMemHostAlloc\",\"ms\":%.2f", now_ms() - begin);
  kind = "cuMemHostAlloc";
  sweeps(memory);
  wake(memory);
  must("cuMemFreeHost", CU(cuMemFreeHost, (void *), memory));
  for (int huge = 1; huge >= 0; huge--) {
    char *area = mmap(NULL, total + 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED) unavailable("mmap refuses %zu bytes", total);
    char *aligned = (char *)(((uintptr_t)area + 2 * MIB - 1) / (2 * MIB) * (2 * MIB));
    madvise(aligned, total + MIB, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    begin = now_ms();
    memset(aligned, 1, total + MIB);
    double touched = now_ms();
    int status = CU(cuMemHostRegister_v2, (void *, size_t, unsigned), aligned, total + MIB, 1);
    kind = huge ? "registered, huge pages" : "registered, small pages";
    answer("pin", "\"memory\":\"%s\",\"status\":\"%s\",\"touchMs\":%.2f,\"ms\":%.2f", kind, status_name(status), touched - begin, now_ms() - touched);
    if (status == 0) {
      sweeps(aligned);
      must("cuMemHostUnregister", CU(cuMemHostUnregister, (void *), aligned));
    }
    munmap(area, total + 4 * MIB);
  }
  must("cuMemFree", CU(cuMemFree_v2, (Address), target));
  return 0;
}
