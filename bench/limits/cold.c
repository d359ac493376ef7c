/*
 * The cold limit: one io_uring keeps 16 direct reads (O_DIRECT) of 2 MiB in flight into fresh huge pages. Raw system calls, no liburing.
 *
 *   limit-cold [--compare] [--prepare COMMAND] FILE...
 *
 * Timed from opening the files to the last byte in place. COMMAND runs right before the timing starts (see machine.c).
 */
#include "common.h"
#include <linux/io_uring.h>
#include <sys/syscall.h>

#define BLOCK_BYTES ((size_t)2 << 20)
#define DEPTH 16
#define DIRECT_ALIGN ((size_t)4096)

struct ring {
  int fd;
  unsigned *sq_tail, *sq_mask, *sq_array;
  unsigned *cq_head, *cq_tail, *cq_mask;
  struct io_uring_sqe *sqes;
  struct io_uring_cqe *cqes;
};

static void ring_open(struct ring *ring) {
  struct io_uring_params p;
  memset(&p, 0, sizeof p);
  ring->fd = (int)syscall(__NR_io_uring_setup, DEPTH, &p);
  if (ring->fd < 0) die("io_uring_setup", "");
  size_t sq_bytes = p.sq_off.array + p.sq_entries * sizeof(unsigned);
  size_t cq_bytes = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
  char *sq = mmap(NULL, sq_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring->fd, IORING_OFF_SQ_RING);
  char *cq = mmap(NULL, cq_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring->fd, IORING_OFF_CQ_RING);
  ring->sqes = mmap(NULL, p.sq_entries * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring->fd, IORING_OFF_SQES);
  if (sq == MAP_FAILED || cq == MAP_FAILED || ring->sqes == MAP_FAILED) die("mmap", "ring");
  ring->sq_tail = (unsigned *)(sq + p.sq_off.tail);
  ring->sq_mask = (unsigned *)(sq + p.sq_off.ring_mask);
  ring->sq_array = (unsigned *)(sq + p.sq_off.array);
  ring->cq_head = (unsigned *)(cq + p.cq_off.head);
  ring->cq_tail = (unsigned *)(cq + p.cq_off.tail);
  ring->cq_mask = (unsigned *)(cq + p.cq_off.ring_mask);
  ring->cqes = (struct io_uring_cqe *)(cq + p.cq_off.cqes);
}

static void ring_queue(struct ring *ring, int fd, char *memory, size_t length, size_t offset, uint64_t id) {
  unsigned tail = *ring->sq_tail, slot = tail & *ring->sq_mask;
  struct io_uring_sqe *e = &ring->sqes[slot];
  memset(e, 0, sizeof *e);
  e->opcode = IORING_OP_READ;
  e->fd = fd;
  e->addr = (uint64_t)memory;
  e->len = (unsigned)length;
  e->off = offset;
  e->user_data = id;
  ring->sq_array[slot] = slot;
  __atomic_store_n(ring->sq_tail, tail + 1, __ATOMIC_RELEASE);
}

struct read_in_flight {
  int file;
  size_t offset, wanted; /* wanted: bytes of the file; the request itself is rounded up to the alignment */
};

int main(int argc, char **argv) {
  static struct job job;
  int arg = 1, check = 0;
  for (; arg < argc && strncmp(argv[arg], "--", 2) == 0; arg++) {
    if (strcmp(argv[arg], "--compare") == 0) check = 1;
    else if (strcmp(argv[arg], "--prepare") == 0 && arg + 1 < argc) {
      if (system(argv[++arg]) != 0) return 70;
    } else return 64;
  }
  double start = now_seconds();
  open_sources(&job, argv + arg, argc - arg, O_DIRECT);
  char *base = fresh_region(job.region_bytes);
  struct ring ring;
  ring_open(&ring);
  struct read_in_flight slots[DEPTH];
  int free_slots[DEPTH], free_count = DEPTH, file = 0;
  size_t offset = 0, done = 0;
  for (int i = 0; i < DEPTH; i++) free_slots[i] = i;
  while (done < job.bytes) {
    unsigned queued = 0;
    while (free_count > 0 && file < job.count) {
      if (offset >= job.files[file].bytes) {
        file++, offset = 0;
        continue;
      }
      int s = free_slots[--free_count];
      size_t left = job.files[file].bytes - offset;
      slots[s] = (struct read_in_flight){file, offset, left < BLOCK_BYTES ? left : BLOCK_BYTES};
      ring_queue(&ring, job.files[file].fd, base + job.files[file].place + offset, round_up(slots[s].wanted, DIRECT_ALIGN), offset, (uint64_t)s);
      offset += slots[s].wanted;
      queued++;
    }
    int rc;
    do rc = (int)syscall(__NR_io_uring_enter, ring.fd, queued, 1, IORING_ENTER_GETEVENTS, NULL, 0);
    while (rc < 0 && errno == EINTR);
    if (rc < 0) die("io_uring_enter", "");
    unsigned head = *ring.cq_head;
    for (; head != __atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE); head++) {
      struct io_uring_cqe *c = &ring.cqes[head & *ring.cq_mask];
      struct read_in_flight *r = &slots[c->user_data];
      if (c->res < 0) errno = -c->res, die("read", job.files[r->file].path);
      if ((size_t)c->res < r->wanted) {
        fprintf(stderr, "%s: %d of %zu bytes at offset %zu\n", job.files[r->file].path, c->res, r->wanted, r->offset);
        return 74;
      }
      done += r->wanted;
      free_slots[free_count++] = (int)c->user_data;
    }
    __atomic_store_n(ring.cq_head, head, __ATOMIC_RELEASE);
  }
  double seconds = now_seconds() - start;
  if (check) compare(&job, base);
  print_result(&job, seconds);
  return 0;
}
