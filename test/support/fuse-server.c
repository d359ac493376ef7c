/*
 * A read-only file system over the raw FUSE device that serves the files of one folder and misbehaves as it is told:
 *
 *   fuse-server BACKING MOUNT [key=value ...]
 *
 *   direct=1         opens are answered with FOPEN_DIRECT_IO
 *   odirect=einval   opens with O_DIRECT are refused
 *   short=N          a read brings at most N bytes
 *   fail=N           reads over file offset N fail with EIO
 *   ino=relookup     every look-up gives another inode number
 *   mtime=now        the modification time is the time of the question
 *   mtime=trunc      nanoseconds until a file is first read
 *   delay=MS         every read waits first
 *   at=N event=WHAT  at the Nth read, once:
 *     damage         the file has the bytes of NAME.new from now on, and a later modification time
 *     grow           the file is 4096 bytes longer
 *     replace        look-ups lead to another file, with the bytes of NAME.new; open descriptors keep the old one
 *     remove         look-ups find nothing
 *     unmount        the server ends, and its mount with it
 *
 * Prints "mounted" once it serves. Ends, and unmounts, with SIGTERM or with the process that started it.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { MAX_NODES = 1 << 16, MAX_READ = 128 << 10, THREADS = 4, FIRST_INODE = 5000 };

struct node {
  char name[256];
  int renewed; /* Made by a look-up after the event `replace`. */
  atomic_int was_read;
};

static const char *backing, *mount_point;
static const char *ino = "stable", *mtime = "stable", *odirect = "ok", *event = "";
static long direct_io, short_bytes, fail_offset = -1, delay_ms, event_at;
static int device;
static struct node nodes[MAX_NODES]; /* By node number; 1 is the root. */
static uint64_t last_node = FUSE_ROOT_ID;
static pthread_mutex_t nodes_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_long reads;
static atomic_int happened;

static int is(const char *value, const char *expected) { return strcmp(value, expected) == 0; }

static void end(int number) {
  (void)number;
  umount2(mount_point, MNT_DETACH);
  _exit(0);
}

static void reply(const struct fuse_in_header *in, int error, const void *data, size_t bytes) {
  struct fuse_out_header out = { .len = (uint32_t)(sizeof out + bytes), .error = -error, .unique = in->unique };
  struct iovec parts[2] = { { &out, sizeof out }, { (void *)data, bytes } };
  /* A request that was interrupted has nobody who waits for the answer. */
  if (writev(device, parts, bytes > 0 ? 2 : 1) < 0 && errno != ENOENT) perror("fuse-server: reply");
}

/* The file that holds the bytes of a node now. */
static int path_of(uint64_t number, char *path, size_t bytes) {
  if (number == FUSE_ROOT_ID) return snprintf(path, bytes, "%s", backing) < (int)bytes;
  int fresh = nodes[number].renewed || (happened && is(event, "damage"));
  return snprintf(path, bytes, "%s/%s%s", backing, nodes[number].name, fresh ? ".new" : "") < (int)bytes;
}

static int attributes(uint64_t number, struct fuse_attr *attr) {
  char path[4096];
  struct stat found;
  if (!path_of(number, path, sizeof path) || lstat(path, &found) != 0) return ENOENT;
  struct timespec written = found.st_mtim;
  if (is(mtime, "now")) clock_gettime(CLOCK_REALTIME, &written);
  if (is(mtime, "trunc") && nodes[number].was_read) written.tv_nsec = 0;
  memset(attr, 0, sizeof *attr);
  attr->ino = FIRST_INODE + number;
  attr->size = (uint64_t)found.st_size + (happened && is(event, "grow") ? 4096 : 0);
  attr->blocks = (uint64_t)found.st_blocks;
  attr->mtime = (uint64_t)written.tv_sec;
  attr->mtimensec = (uint32_t)written.tv_nsec;
  attr->mode = found.st_mode;
  attr->nlink = 1;
  attr->blksize = 4096;
  return 0;
}

/* The node of a name: the one it had before, unless inode numbers or the file behind the name are to be new. */
static uint64_t node_of(const char *name) {
  int renewed = happened && is(event, "replace");
  uint64_t number = 0;
  pthread_mutex_lock(&nodes_lock);
  for (uint64_t at = FUSE_ROOT_ID + 1; at <= last_node && is(ino, "stable"); at++) {
    if (is(nodes[at].name, name) && nodes[at].renewed == renewed) number = at;
  }
  if (number == 0 && last_node + 1 < MAX_NODES) {
    number = ++last_node;
    snprintf(nodes[number].name, sizeof nodes[number].name, "%s", name);
    nodes[number].renewed = renewed;
  }
  pthread_mutex_unlock(&nodes_lock);
  return number;
}

static void look_up(const struct fuse_in_header *in, const char *name) {
  struct fuse_entry_out out = { 0 };
  if (happened && is(event, "remove")) return reply(in, ENOENT, NULL, 0);
  uint64_t number = node_of(name);
  int error = number == 0 ? ENOMEM : attributes(number, &out.attr);
  if (error != 0) return reply(in, error, NULL, 0);
  out.nodeid = number;
  reply(in, 0, &out, sizeof out);
}

static void read_file(const struct fuse_in_header *in, const struct fuse_read_in *wanted) {
  nodes[in->nodeid].was_read = 1;
  if (++reads == event_at) {
    happened = 1;
    if (is(event, "unmount")) end(0);
  }
  if (delay_ms > 0) usleep((useconds_t)(delay_ms * 1000));
  uint64_t offset = wanted->offset, bytes = wanted->size < MAX_READ ? wanted->size : MAX_READ;
  if (fail_offset >= 0 && offset <= (uint64_t)fail_offset && (uint64_t)fail_offset < offset + bytes) return reply(in, EIO, NULL, 0);
  if (short_bytes > 0 && bytes > (uint64_t)short_bytes) bytes = (uint64_t)short_bytes;
  char path[4096], *buffer = malloc(MAX_READ);
  int file = path_of(in->nodeid, path, sizeof path) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  ssize_t count = file < 0 || buffer == NULL ? -1 : pread(file, buffer, bytes, (off_t)offset);
  if (count < 0) reply(in, EIO, NULL, 0);
  else reply(in, 0, buffer, (size_t)count);
  if (file >= 0) close(file);
  free(buffer);
}

static void read_folder(const struct fuse_in_header *in, const struct fuse_read_in *wanted) {
  char buffer[MAX_READ];
  size_t used = 0, limit = wanted->size < sizeof buffer ? wanted->size : sizeof buffer;
  uint64_t position = 0;
  DIR *folder = opendir(backing);
  if (folder == NULL) return reply(in, errno, NULL, 0);
  for (struct dirent *found; (found = readdir(folder)) != NULL;) {
    size_t length = strlen(found->d_name), whole = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + length);
    if (length > 4 && is(found->d_name + length - 4, ".new")) continue;
    if (position++ < wanted->offset) continue;
    if (used + whole > limit) break;
    struct fuse_dirent *entry = (struct fuse_dirent *)(buffer + used);
    memset(entry, 0, whole);
    entry->ino = FIRST_INODE;
    entry->off = position;
    entry->namelen = (uint32_t)length;
    entry->type = found->d_type;
    memcpy(entry->name, found->d_name, length);
    used += whole;
  }
  closedir(folder);
  reply(in, 0, buffer, used);
}

static void answer(const struct fuse_in_header *in, const void *body) {
  switch (in->opcode) {
    case FUSE_INIT: {
      struct fuse_init_out out = { .major = FUSE_KERNEL_VERSION, .minor = 31, .max_readahead = MAX_READ, .flags = FUSE_ASYNC_READ };
      out.max_background = 12;
      out.congestion_threshold = 9;
      out.max_write = MAX_READ;
      out.time_gran = 1;
      out.max_pages = MAX_READ / 4096;
      return reply(in, 0, &out, sizeof out);
    }
    case FUSE_LOOKUP: return look_up(in, body);
    case FUSE_GETATTR: {
      struct fuse_attr_out out = { 0 };
      int error = attributes(in->nodeid, &out.attr);
      return error != 0 ? reply(in, error, NULL, 0) : reply(in, 0, &out, sizeof out);
    }
    case FUSE_OPEN:
    case FUSE_OPENDIR: {
      struct fuse_open_out out = { 0 };
      int folder = in->opcode == FUSE_OPENDIR;
      if (!folder && is(odirect, "einval") && ((const struct fuse_open_in *)body)->flags & O_DIRECT) return reply(in, EINVAL, NULL, 0);
      if (!folder && direct_io) out.open_flags = FOPEN_DIRECT_IO;
      return reply(in, 0, &out, sizeof out);
    }
    case FUSE_READ: return read_file(in, body);
    case FUSE_READDIR: return read_folder(in, body);
    case FUSE_STATFS: {
      struct fuse_statfs_out out = { .st = { .bsize = 4096, .frsize = 4096, .namelen = 255 } };
      return reply(in, 0, &out, sizeof out);
    }
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
    case FUSE_FLUSH: return reply(in, 0, NULL, 0);
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT: return;
    default: return reply(in, ENOSYS, NULL, 0);
  }
}

static void *serve(void *unused) {
  size_t limit = FUSE_MIN_READ_BUFFER + MAX_READ;
  char *buffer = malloc(limit);
  while (buffer != NULL) {
    ssize_t count = read(device, buffer, limit);
    if (count < 0 && (errno == EINTR || errno == EAGAIN || errno == ENOENT)) continue;
    if (count < (ssize_t)sizeof(struct fuse_in_header)) _exit(0); /* Unmounted. */
    answer((const struct fuse_in_header *)buffer, buffer + sizeof(struct fuse_in_header));
  }
  return unused;
}

static void set(const char *word) {
  const char *value = strchr(word, '=');
  size_t length = value == NULL ? 0 : (size_t)(value++ - word);
#define IS(key) (length == sizeof(key) - 1 && strncmp(word, key, length) == 0)
  if (IS("direct")) direct_io = atol(value);
  else if (IS("odirect")) odirect = value;
  else if (IS("short")) short_bytes = atol(value);
  else if (IS("fail")) fail_offset = atol(value);
  else if (IS("ino")) ino = value;
  else if (IS("mtime")) mtime = value;
  else if (IS("delay")) delay_ms = atol(value);
  else if (IS("at")) event_at = atol(value);
  else if (IS("event")) event = value;
  else {
    fprintf(stderr, "no such option: %s\n", word);
    exit(64);
  }
#undef IS
}

int main(int count, char **words) {
  if (count < 3) return 64;
  backing = words[1];
  mount_point = words[2];
  for (int at = 3; at < count; at++) set(words[at]);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  signal(SIGTERM, end);
  device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
  if (device < 0) return perror("/dev/fuse"), 69;
  char options[128];
  snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other,max_read=%d", device, MAX_READ);
  if (mount("mx-test", mount_point, "fuse.mxtest", MS_NOSUID | MS_NODEV, options) != 0) return perror("mount"), 69;
  pthread_t thread;
  for (int at = 1; at < THREADS; at++) pthread_create(&thread, NULL, serve, NULL);
  puts("mounted");
  fflush(stdout);
  serve(NULL);
  return 0;
}
