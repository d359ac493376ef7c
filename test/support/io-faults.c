/*
 * A library to load in front of libc (LD_PRELOAD) that makes reads go wrong as storage makes them go wrong.
 *
 *   MX_FAULTS        what happens, as words separated by commas:
 *     short=N          a read returns at most N bytes
 *     eintr=K          every K-th read fails once with EINTR
 *     fail=OFFSET:ERR  a read over the file offset OFFSET fails; ERR is EIO, ESTALE, EAGAIN or a number
 *     stall=MS         every read waits MS milliseconds first
 *     hang=OFFSET      a read over the file offset OFFSET never returns
 *     nodirect         open with O_DIRECT fails with EINVAL
 *   MX_FAULTS_FILES  a part of the path that concerned files have (default ".safetensors")
 *   MX_FAULTS_REPORT a file to append "reads=N short=N eintr=N fail=N stall=N nodirect=N" to when the process ends, and "hang=1" as soon as a
 *                    read hangs
 *
 * It sees what goes through libc; io_uring and raw system calls pass it by. The plan is read once, before main.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct plan {
  long short_bytes, eintr_every, stall_ms;
  long long fail_offset, hang_offset;
  int fail_errno, no_direct;
  const char *files, *report;
};

static struct plan plan = {.fail_offset = -1, .hang_offset = -1};
static atomic_long reads, shorts, eintrs, fails, stalls, refusals;

static int errno_of(const char *name) {
  if (!strcmp(name, "EIO")) return EIO;
  if (!strcmp(name, "ESTALE")) return ESTALE;
  if (!strcmp(name, "EAGAIN")) return EAGAIN;
  return atoi(name);
}

__attribute__((constructor)) static void read_plan(void) {
  const char *files = getenv("MX_FAULTS_FILES"), *words = getenv("MX_FAULTS");
  plan.files = files ? files : ".safetensors";
  plan.report = getenv("MX_FAULTS_REPORT");
  if (!words) return;
  char *copy = strdup(words), *rest = NULL;
  for (char *word = strtok_r(copy, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
    char error[16] = "EIO";
    if (sscanf(word, "short=%ld", &plan.short_bytes) == 1) continue;
    if (sscanf(word, "eintr=%ld", &plan.eintr_every) == 1) continue;
    if (sscanf(word, "stall=%ld", &plan.stall_ms) == 1) continue;
    if (sscanf(word, "hang=%lld", &plan.hang_offset) == 1) continue;
    if (sscanf(word, "fail=%lld:%15s", &plan.fail_offset, error) >= 1) {
      plan.fail_errno = errno_of(error);
      continue;
    }
    if (!strcmp(word, "nodirect")) {
      plan.no_direct = 1;
      continue;
    }
    fprintf(stderr, "io-faults: unknown word %s\n", word);
    abort();
  }
  free(copy);
}

__attribute__((destructor)) static void tell(void) {
  FILE *out = plan.report ? fopen(plan.report, "a") : NULL;
  if (!out) return;
  fprintf(out, "reads=%ld short=%ld eintr=%ld fail=%ld stall=%ld nodirect=%ld\n", reads, shorts, eintrs, fails, stalls, refusals);
  fclose(out);
}

/* At once: somebody may wait for it to happen. */
static void tell_hang(void) {
  FILE *out = plan.report ? fopen(plan.report, "a") : NULL;
  if (!out) return;
  fputs("hang=1\n", out);
  fclose(out);
}

static int concerns(int fd) {
  char link[32], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return strstr(path, plan.files) != NULL;
}

static int covers(off_t offset, size_t length, long long at) { return at >= 0 && offset >= 0 && offset <= at && at < offset + (long long)length; }

/* How many bytes of a read may go on; -1 with errno when it fails. */
static ssize_t admit(int fd, off_t offset, size_t length) {
  if (!concerns(fd)) return length;
  long turn = ++reads;
  if (plan.stall_ms) {
    stalls++;
    struct timespec time = {plan.stall_ms / 1000, plan.stall_ms % 1000 * 1000000};
    while (nanosleep(&time, &time) && errno == EINTR) {}
  }
  if (covers(offset, length, plan.hang_offset)) {
    tell_hang();
    for (;;) pause();
  }
  if (plan.eintr_every && turn % plan.eintr_every == 0) {
    eintrs++;
    errno = EINTR;
    return -1;
  }
  if (covers(offset, length, plan.fail_offset)) {
    fails++;
    errno = plan.fail_errno;
    return -1;
  }
  if (plan.short_bytes && length > (size_t)plan.short_bytes) {
    shorts++;
    return plan.short_bytes;
  }
  return length;
}

/* The vectors cut to `length` bytes in all; returns how many remain. */
static int cut(const struct iovec *from, int count, size_t length, struct iovec *to) {
  int used = 0;
  for (; used < count && length > 0; used++) {
    to[used] = from[used];
    if (to[used].iov_len > length) to[used].iov_len = length;
    length -= to[used].iov_len;
  }
  return used;
}

static size_t total(const struct iovec *vectors, int count) {
  size_t length = 0;
  for (int i = 0; i < count; i++) length += vectors[i].iov_len;
  return length;
}

#define REAL(type, name, ...) \
  static type (*real)(__VA_ARGS__); \
  if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

ssize_t read(int fd, void *buffer, size_t length) {
  REAL(ssize_t, "read", int, void *, size_t);
  ssize_t allowed = admit(fd, plan.fail_offset >= 0 || plan.hang_offset >= 0 ? lseek(fd, 0, SEEK_CUR) : -1, length);
  return allowed < 0 ? -1 : real(fd, buffer, allowed);
}

ssize_t pread64(int fd, void *buffer, size_t length, off64_t offset) {
  REAL(ssize_t, "pread64", int, void *, size_t, off64_t);
  ssize_t allowed = admit(fd, offset, length);
  return allowed < 0 ? -1 : real(fd, buffer, allowed, offset);
}

ssize_t pread(int fd, void *buffer, size_t length, off_t offset) { return pread64(fd, buffer, length, offset); }

ssize_t preadv64v2(int fd, const struct iovec *vectors, int count, off64_t offset, int flags) {
  REAL(ssize_t, "preadv64v2", int, const struct iovec *, int, off64_t, int);
  struct iovec fewer[IOV_MAX];
  if (count < 0 || count > IOV_MAX) return real(fd, vectors, count, offset, flags);
  ssize_t allowed = admit(fd, offset, total(vectors, count));
  if (allowed < 0) return -1;
  int used = cut(vectors, count, allowed, fewer);
  return real(fd, fewer, used, offset, flags);
}

ssize_t preadv2(int fd, const struct iovec *vectors, int count, off_t offset, int flags) { return preadv64v2(fd, vectors, count, offset, flags); }

ssize_t preadv64(int fd, const struct iovec *vectors, int count, off64_t offset) { return preadv64v2(fd, vectors, count, offset, 0); }

ssize_t preadv(int fd, const struct iovec *vectors, int count, off_t offset) { return preadv64v2(fd, vectors, count, offset, 0); }

static int refuses(int flags) {
  if (!plan.no_direct || !(flags & O_DIRECT)) return 0;
  refusals++;
  errno = EINVAL;
  return 1;
}

static mode_t mode_of(int flags, va_list rest) { return flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0; }

int openat64(int folder, const char *path, int flags, ...) {
  REAL(int, "openat64", int, const char *, int, ...);
  va_list rest;
  va_start(rest, flags);
  mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return refuses(flags) ? -1 : real(folder, path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return openat64(folder, path, flags, mode);
}

int open64(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return openat64(AT_FDCWD, path, flags, mode);
}

int open(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return openat64(AT_FDCWD, path, flags, mode);
}

/* O_DIRECT may also be asked for on a descriptor that is open. */
int fcntl64(int fd, int command, ...) {
  REAL(int, "fcntl64", int, int, ...);
  va_list rest;
  va_start(rest, command);
  void *argument = va_arg(rest, void *);
  va_end(rest);
  if (command == F_SETFL && refuses((int)(long)argument)) return -1;
  return real(fd, command, argument);
}

int fcntl(int fd, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void *argument = va_arg(rest, void *);
  va_end(rest);
  return fcntl64(fd, command, argument);
}
