/*
 * The warm limit: two threads read the files through the page cache in blocks of 8 MiB into fresh huge pages.
 *
 *   limit-warm [--compare] [--prepare COMMAND] FILE...
 *
 * Timed from opening the files to the last byte in place. COMMAND runs right before the timing starts (see machine.c).
 */
#include "common.h"
#include <pthread.h>
#include <stdatomic.h>

#define BLOCK_BYTES ((size_t)8 << 20)
#define THREADS 2

static struct job job;
static char *base;
static atomic_size_t next_place;

/* Blocks are handed out over the whole region: a file starts on a huge page, so a block lies in one file or has to be looked for. */
static void *reader(void *unused) {
  (void)unused;
  for (;;) {
    size_t begin = atomic_fetch_add(&next_place, BLOCK_BYTES);
    if (begin >= job.region_bytes) return NULL;
    size_t end = begin + BLOCK_BYTES;
    for (int i = 0; i < job.count; i++) {
      struct source *f = &job.files[i];
      size_t file_end = f->place + f->bytes;
      size_t at = begin > f->place ? begin : f->place;
      size_t stop = end < file_end ? end : file_end;
      while (at < stop) {
        ssize_t got = pread(f->fd, base + at, stop - at, (off_t)(at - f->place));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) die("pread", f->path);
        at += (size_t)got;
      }
    }
  }
}

int main(int argc, char **argv) {
  int arg = 1, check = 0;
  for (; arg < argc && strncmp(argv[arg], "--", 2) == 0; arg++) {
    if (strcmp(argv[arg], "--compare") == 0) check = 1;
    else if (strcmp(argv[arg], "--prepare") == 0 && arg + 1 < argc) {
      if (system(argv[++arg]) != 0) return 70;
    } else return 64;
  }
  double start = now_seconds();
  open_sources(&job, argv + arg, argc - arg, 0);
  base = fresh_region(job.region_bytes);
  pthread_t threads[THREADS];
  for (int t = 0; t < THREADS; t++)
    if (pthread_create(&threads[t], NULL, reader, NULL) != 0) die("pthread_create", "reader");
  for (int t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
  double seconds = now_seconds() - start;
  if (check) compare(&job, base);
  print_result(&job, seconds);
  return 0;
}
