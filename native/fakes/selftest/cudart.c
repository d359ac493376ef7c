/* The rules of libcudart.so.12. */
#include "../cuda/abi.h"
#include "check.h"

struct attributes {
  int type, device;
  void *device_pointer, *host_pointer;
};

int cudaGetLastError(void), cudaPeekAtLastError(void), cudaSetDevice(int), cudaGetDevice(int *), cudaGetDeviceCount(int *);
int cudaMalloc(void **, size_t), cudaFree(void *), cudaMemcpy(void *, const void *, size_t, int), cudaMemset(void *, int, size_t);
int cudaHostAlloc(void **, size_t, unsigned), cudaFreeHost(void *), cudaPointerGetAttributes(struct attributes *, const void *);
int cudaStreamCreate(CUstream *), cudaStreamQuery(CUstream), cudaStreamSynchronize(CUstream), cudaStreamDestroy(CUstream);
int cudaMemcpyAsync(void *, const void *, size_t, int, CUstream);
const char *cudaGetErrorString(int), *cudaGetErrorName(int);

enum { TO_DEVICE = 1, TO_HOST = 2, BY_ADDRESS = 4 };

static void rules(void) {
  int device, count;
  void *memory, *pinned;
  char out[8] = "";
  struct attributes facts;
  OK(cudaGetDeviceCount(&count));
  IS(count, 2);
  IS(cudaSetDevice(2), 101);
  IS(cudaPeekAtLastError(), 101);
  IS(cudaGetLastError(), 101);
  OK(cudaGetLastError());
  OK(cudaSetDevice(1));
  OK(cudaGetDevice(&device));
  IS(device, 1);
  OK(cudaMalloc(&memory, 100));
  OK(cudaPointerGetAttributes(&facts, memory));
  IS(facts.type, 2);
  IS(facts.device, 1);
  OK(cudaPointerGetAttributes(&facts, out));
  IS(facts.type, 0);
  OK(cudaMemcpy(memory, "weights", 8, TO_DEVICE));
  IS(cudaMemcpy(memory, "weights", 8, TO_HOST), 1);
  IS(cudaMemcpy(memory, "weights", 8, 9), 21);
  IS(cudaMemcpy((char *)memory + 96, "weights", 8, TO_DEVICE), 700);
  OK(cudaMemcpy(out, memory, 8, BY_ADDRESS));
  IS(strcmp(out, "weights"), 0);
  OK(cudaMemset(memory, 3, 100));
  OK(cudaHostAlloc(&pinned, 4096, 0));
  CUstream stream;
  OK(cudaStreamCreate(&stream));
  OK(cudaMemcpyAsync(pinned, memory, 100, TO_HOST, stream));
  IS(cudaStreamQuery(stream), 600);
  OK(cudaStreamSynchronize(stream));
  IS(*(char *)pinned, 3);
  OK(cudaStreamDestroy(stream));
  IS(cudaStreamDestroy(stream), 400);
  OK(cudaFreeHost(pinned));
  IS(cudaFree(pinned), 1);
  OK(cudaFree(memory));
  IS(cudaFree(memory), 1);
  IS(strcmp(cudaGetErrorString(2), "out of memory"), 0);
  IS(strcmp(cudaGetErrorName(2), "cudaErrorMemoryAllocation"), 0);
}

int main(int argc, char **argv) {
  static const struct scenario scenarios[] = {{"rules", rules}, {0}};
  return run_scenario(scenarios, argc, argv);
}
