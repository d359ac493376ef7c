/*
 * A C library that allocates in the process's active arena, from threads of its own, by the two symbols that an allocator exports: inside
 * Node those of the addon. Node-API is declared here as far as it is used, so that no headers are needed; with WITHOUT_NODE only
 * `c_caller_pairs` is left, for any other process.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

static void *(*mx_malloc)(ssize_t, int, void *);
static void (*mx_free)(void *, ssize_t, int, void *);

/* Finds the symbols in a library that the process has loaded already; never loads it a second time. Null, or what is wrong. */
static const char *find(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (!library) return "the library is not loaded";
  *(void **)&mx_malloc = dlsym(library, "mx_malloc");
  *(void **)&mx_free = dlsym(library, "mx_free");
  return mx_malloc && mx_free ? NULL : "the library does not export mx_malloc and mx_free";
}

#ifdef WITHOUT_NODE

/* So many pairs on the calling thread, by the symbols of the library at `path`. False where the library is not loaded, or one was refused. */
__attribute__((visibility("default"))) bool c_caller_pairs(const char *path, ssize_t bytes, int device, size_t count) {
  if (find(path)) return false;
  for (size_t at = 0; at < count; at++) {
    void *address = mx_malloc(bytes, device, NULL);
    if (!address) return false;
    mx_free(address, bytes, device, NULL);
  }
  return true;
}

#else

typedef struct napi_env__ *napi_env;
typedef struct napi_value__ *napi_value;
typedef struct napi_callback_info__ *napi_callback_info;
typedef napi_value (*napi_callback)(napi_env, napi_callback_info);
int napi_get_cb_info(napi_env, napi_callback_info, size_t *, napi_value *, napi_value *, void **);
int napi_get_value_double(napi_env, napi_value, double *);
int napi_get_value_string_utf8(napi_env, napi_value, char *, size_t, size_t *);
int napi_get_value_bigint_uint64(napi_env, napi_value, uint64_t *, bool *);
int napi_create_bigint_uint64(napi_env, uint64_t, napi_value *);
int napi_create_double(napi_env, double, napi_value *);
int napi_create_array(napi_env, napi_value *);
int napi_set_element(napi_env, napi_value, uint32_t, napi_value);
int napi_create_function(napi_env, const char *, size_t, napi_callback, void *, napi_value *);
int napi_set_named_property(napi_env, napi_value, const char *, napi_value);
int napi_throw_error(napi_env, const char *, const char *);

enum { MAX_THREADS = 64, HELD = 4 };

struct job {
  pthread_t thread;
  ssize_t bytes;
  int device;
  bool touch;
  size_t pairs; /* 0: until told to stop */
  size_t given, refused;
  void *address;
};

static struct job jobs[MAX_THREADS];
static size_t running;
static volatile bool stop_asked;
static pthread_barrier_t begin;

/* Holds a few allocations at a time, frees them in the order they came. One more round after it was asked to stop sees what was done before that. */
static void *allocate_until_stopped(void *argument) {
  struct job *job = argument;
  for (bool last = false; !last;) {
    last = stop_asked;
    void *held[HELD];
    for (int at = 0; at < HELD; at++) {
      held[at] = mx_malloc(job->bytes, job->device, NULL);
      if (!held[at]) {
        job->refused++;
        sched_yield();
        continue;
      }
      job->given++;
      if (job->touch) memset(held[at], at + 1, 64);
    }
    for (int at = 0; at < HELD; at++)
      if (held[at]) mx_free(held[at], job->bytes, job->device, NULL);
  }
  return NULL;
}

static void *allocate_pairs(void *argument) {
  struct job *job = argument;
  pthread_barrier_wait(&begin);
  for (size_t at = 0; at < job->pairs; at++) {
    void *address = mx_malloc(job->bytes, job->device, NULL);
    if (address) job->given++;
    else job->refused++;
    mx_free(address, job->bytes, job->device, NULL);
  }
  return NULL;
}

static void *allocate_once(void *argument) {
  struct job *job = argument;
  job->address = mx_malloc(job->bytes, job->device, NULL);
  if (job->address && job->touch) memset(job->address, 0x5a, (size_t)job->bytes);
  return NULL;
}

static void *free_once(void *argument) {
  struct job *job = argument;
  mx_free(job->address, job->bytes, job->device, NULL);
  return NULL;
}

static double nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static bool launch(size_t count, struct job like, void *(*work)(void *)) {
  if (count < 1 || count > MAX_THREADS) return false;
  for (running = 0; running < count; running++) {
    jobs[running] = like;
    if (pthread_create(&jobs[running].thread, NULL, work, &jobs[running])) abort();
  }
  return true;
}

struct outcome {
  double given, refused, nanoseconds;
};

/* Waits for all threads. */
static struct outcome finish(double from) {
  struct outcome all = {0};
  for (size_t at = 0; at < running; at++) {
    pthread_join(jobs[at].thread, NULL);
    all.given += (double)jobs[at].given;
    all.refused += (double)jobs[at].refused;
  }
  running = 0;
  all.nanoseconds = nanoseconds() - from;
  return all;
}

/* `pairs` mallocs with their frees on each of `threads` threads. */
static struct outcome run_pairs(size_t threads, struct job like) {
  struct outcome all = {0};
  pthread_barrier_init(&begin, NULL, (unsigned)threads + 1);
  if (launch(threads, like, allocate_pairs)) {
    pthread_barrier_wait(&begin);
    all = finish(nanoseconds());
  }
  pthread_barrier_destroy(&begin);
  return all;
}

static size_t arguments(napi_env env, napi_callback_info info, double *numbers, napi_value *values) {
  size_t count = 5;
  napi_get_cb_info(env, info, &count, values, NULL, NULL);
  for (size_t at = 0; at < count; at++)
    if (napi_get_value_double(env, values[at], &numbers[at])) numbers[at] = 0;
  return count;
}

static napi_value number(napi_env env, double value) {
  napi_value result;
  napi_create_double(env, value, &result);
  return result;
}

static napi_value fail(napi_env env, const char *message) {
  napi_throw_error(env, NULL, message);
  return NULL;
}

/* open(path) */
static napi_value open_library(napi_env env, napi_callback_info info) {
  napi_value values[5];
  double numbers[5];
  char path[4096];
  arguments(env, info, numbers, values);
  napi_get_value_string_utf8(env, values[0], path, sizeof path, NULL);
  const char *wrong = find(path);
  return wrong ? fail(env, wrong) : NULL;
}

/* malloc(bytes, device, touch): on a thread that ends afterwards. A bigint, 0 for null. */
static napi_value malloc_on_thread(napi_env env, napi_callback_info info) {
  napi_value values[5], result;
  double numbers[5] = {0};
  arguments(env, info, numbers, values);
  struct job job = {.bytes = (ssize_t)numbers[0], .device = (int)numbers[1], .touch = numbers[2] != 0};
  if (pthread_create(&job.thread, NULL, allocate_once, &job)) return fail(env, "pthread_create");
  pthread_join(job.thread, NULL);
  napi_create_bigint_uint64(env, (uint64_t)(uintptr_t)job.address, &result);
  return result;
}

/* free(address, bytes, device): on another thread. */
static napi_value free_on_thread(napi_env env, napi_callback_info info) {
  napi_value values[5];
  double numbers[5] = {0};
  uint64_t address = 0;
  bool lossless;
  arguments(env, info, numbers, values);
  napi_get_value_bigint_uint64(env, values[0], &address, &lossless);
  struct job job = {.bytes = (ssize_t)numbers[1], .device = (int)numbers[2], .address = (void *)(uintptr_t)address};
  if (pthread_create(&job.thread, NULL, free_once, &job)) return fail(env, "pthread_create");
  pthread_join(job.thread, NULL);
  return NULL;
}

/* [given, refused, nanoseconds] */
static napi_value told(napi_env env, struct outcome all) {
  napi_value result;
  napi_create_array(env, &result);
  napi_set_element(env, result, 0, number(env, all.given));
  napi_set_element(env, result, 1, number(env, all.refused));
  napi_set_element(env, result, 2, number(env, all.nanoseconds));
  return result;
}

/* start(threads, bytes, device, touch): they run until `stop()`, which returns [given, refused, ...]. */
static napi_value start(napi_env env, napi_callback_info info) {
  napi_value values[5];
  double numbers[5] = {0};
  arguments(env, info, numbers, values);
  stop_asked = false;
  struct job like = {.bytes = (ssize_t)numbers[1], .device = (int)numbers[2], .touch = numbers[3] != 0};
  return launch((size_t)numbers[0], like, allocate_until_stopped) ? NULL : fail(env, "from 1 to 64 threads");
}

static napi_value stop(napi_env env, napi_callback_info info) {
  (void)info;
  stop_asked = true;
  return told(env, finish(nanoseconds()));
}

/* pairs(threads, bytes, device, count): count mallocs with their frees on each thread; returns [given, refused, nanoseconds]. */
static napi_value pairs(napi_env env, napi_callback_info info) {
  napi_value values[5];
  double numbers[5] = {0};
  arguments(env, info, numbers, values);
  struct job like = {.bytes = (ssize_t)numbers[1], .device = (int)numbers[2], .pairs = (size_t)numbers[3]};
  return told(env, run_pairs((size_t)numbers[0], like));
}

__attribute__((visibility("default"))) napi_value napi_register_module_v1(napi_env env, napi_value exports) {
  const struct {
    const char *name;
    napi_callback function;
  } functions[] = {{"open", open_library}, {"malloc", malloc_on_thread}, {"free", free_on_thread}, {"start", start}, {"stop", stop}, {"pairs", pairs}};
  for (size_t at = 0; at < sizeof functions / sizeof *functions; at++) {
    napi_value function;
    napi_create_function(env, functions[at].name, strlen(functions[at].name), functions[at].function, NULL, &function);
    napi_set_named_property(env, exports, functions[at].name, function);
  }
  return exports;
}

#endif
