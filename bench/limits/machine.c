/*
 * Brings the machine into a known state right before a trial, and says what it found.
 *
 *   machine prepare warm|cold|as-is BYTES FILE...
 *
 * 1. files: warm reads them whole, cold writes them back and drops them from the page cache.
 * 2. memory: BYTES are touched in huge pages by a child, which then exits. A virtual machine hands freed memory back to its host, and the first
 *    touch afterwards is many times slower; without this step a trial measures the host. BYTES 0 skips it.
 * 3. residency: how much of the files the page cache holds now (mincore; true for files of the own user).
 *
 * Prints {"residentBytes":n,"totalBytes":n}; exits with 70 when the state asked for was not reached
 * in three attempts (warm: all but a thousandth is resident; cold: nothing is).
 */
#include "common.h"
#include <sys/wait.h>

/* The kernel may drop pages on its own account between the steps. */
#define ATTEMPTS 3

static void warm_file(const char *path) {
  size_t step = (size_t)4 << 20;
  char *buffer = malloc(step);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) die("open", path);
  ssize_t got;
  while ((got = read(fd, buffer, step)) > 0) continue;
  if (got < 0) die("read", path);
  close(fd);
  free(buffer);
}

static void drop_file(const char *path) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) die("open", path);
  if (fsync(fd) < 0) die("fsync", path);
  errno = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  if (errno != 0) die("posix_fadvise", path);
  close(fd);
}

static void prime_memory(size_t bytes) {
  pid_t child = fork();
  if (child < 0) die("fork", "");
  if (child == 0) {
    char *base = fresh_region(round_up(bytes, HUGE_PAGE_BYTES));
    for (size_t at = 0; at < bytes; at += 4096) base[at] = 1;
    _exit(0);
  }
  int status;
  if (waitpid(child, &status, 0) < 0 || status != 0) die("prime", "memory");
}

static size_t resident_bytes(const char *path, size_t *total) {
  struct stat st;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || fstat(fd, &st) < 0) die("open", path);
  size_t bytes = (size_t)st.st_size, page = (size_t)sysconf(_SC_PAGESIZE), resident = 0, pages = round_up(bytes, page) / page;
  *total += bytes;
  if (bytes > 0) {
    void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    unsigned char *in_core = malloc(pages);
    if (map == MAP_FAILED || mincore(map, bytes, in_core) < 0) die("mincore", path);
    for (size_t i = 0; i < pages; i++)
      if (in_core[i] & 1) resident += i + 1 < pages ? page : bytes - i * page;
    munmap(map, bytes);
    free(in_core);
  }
  close(fd);
  return resident;
}

int main(int argc, char **argv) {
  if (argc < 5 || strcmp(argv[1], "prepare") != 0) {
    fprintf(stderr, "machine prepare warm|cold|as-is BYTES FILE...\n");
    return 64;
  }
  int warm = strcmp(argv[2], "warm") == 0, cold = strcmp(argv[2], "cold") == 0;
  size_t prime = (size_t)strtoull(argv[3], NULL, 10), resident, total;
  int reached = 0;
  for (int attempt = 0; attempt < ATTEMPTS && !reached; attempt++) {
    for (int i = 4; i < argc; i++) {
      if (warm) warm_file(argv[i]);
      if (cold) drop_file(argv[i]);
    }
    if (prime > 0) prime_memory(prime);
    resident = total = 0;
    for (int i = 4; i < argc; i++) resident += resident_bytes(argv[i], &total);
    reached = warm ? resident >= total - total / 1000 : cold ? resident == 0 : 1;
  }
  printf("{\"residentBytes\":%zu,\"totalBytes\":%zu}\n", resident, total);
  return reached ? 0 : 70;
}
