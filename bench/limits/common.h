/* Shared by the two limit programs: the files to read, one fresh region of huge pages for all of them, and the line they print. */
#ifndef MX_BENCH_COMMON_H
#define MX_BENCH_COMMON_H
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HUGE_PAGE_BYTES ((size_t)2 << 20)
#define MAX_FILES 512

static inline void die(const char *what, const char *name) {
  fprintf(stderr, "%s %s: %s\n", what, name, strerror(errno));
  exit(74);
}

static inline double now_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static inline size_t round_up(size_t value, size_t to) { return (value + to - 1) / to * to; }

struct source {
  const char *path;
  int fd;
  size_t bytes;
  size_t place; /* offset in the region, a multiple of a huge page */
};

struct job {
  struct source files[MAX_FILES];
  int count;
  size_t bytes;        /* of all files */
  size_t region_bytes; /* each file rounded up to whole huge pages */
};

static inline void open_sources(struct job *job, char **paths, int count, int flags) {
  if (count < 1 || count > MAX_FILES) {
    fprintf(stderr, "give 1 to %d files\n", MAX_FILES);
    exit(64);
  }
  memset(job, 0, sizeof *job);
  job->count = count;
  for (int i = 0; i < count; i++) {
    struct stat st;
    int fd = open(paths[i], O_RDONLY | O_CLOEXEC | flags);
    if (fd < 0 || fstat(fd, &st) < 0) die("open", paths[i]);
    job->files[i] = (struct source){paths[i], fd, (size_t)st.st_size, job->region_bytes};
    job->bytes += (size_t)st.st_size;
    job->region_bytes += round_up((size_t)st.st_size, HUGE_PAGE_BYTES);
  }
}

/* Fresh anonymous memory that starts on a huge page, huge pages asked for, nothing touched. */
static inline char *fresh_region(size_t bytes) {
  char *raw = mmap(NULL, bytes + HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) die("mmap", "region");
  char *base = (char *)round_up((size_t)raw, HUGE_PAGE_BYTES);
  madvise(base, bytes, MADV_HUGEPAGE);
  return base;
}

/* Compares the region with the files, through other descriptors; outside any timing. */
static inline void compare(const struct job *job, const char *base) {
  size_t step = (size_t)4 << 20;
  char *expected = malloc(step);
  for (int i = 0; i < job->count; i++) {
    int fd = open(job->files[i].path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) die("open", job->files[i].path);
    for (size_t at = 0; at < job->files[i].bytes;) {
      ssize_t got = pread(fd, expected, step, (off_t)at);
      if (got <= 0) die("compare", job->files[i].path);
      if (memcmp(expected, base + job->files[i].place + at, (size_t)got) != 0) {
        fprintf(stderr, "%s: bytes differ in the %zd bytes from offset %zu\n", job->files[i].path, got, at);
        exit(65);
      }
      at += (size_t)got;
    }
    close(fd);
  }
  free(expected);
}

static inline void print_result(const struct job *job, double seconds) {
  printf("{\"seconds\":%.6f,\"bytes\":%zu,\"gigabytesPerSecond\":%.3f}\n", seconds, job->bytes, (double)job->bytes / seconds / 1e9);
}
#endif
