/* The real NIXL over the stand-ins: MX_NIXL_LIBRARY is looked up as the product does it, and a file is read through the real plugins. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

#include "device.h"

enum { DRAM = 0, VRAM = 1, FILES = 4, READ = 0, IN_PROGRESS = 1, CHUNKS = 16 };
enum { FILE_BYTES = 8 << 20, CHUNK_BYTES = FILE_BYTES / CHUNKS };

typedef void *object;

static void *look_up(const char *name) {
  static void *library;
  char symbol[64];
  if (!library) library = dlopen(getenv("MX_NIXL_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
  snprintf(symbol, sizeof symbol, "nixl_capi_%s", name);
  void *found = library ? dlsym(library, symbol) : NULL;
  if (!found) fprintf(stderr, "%s: %s\n", symbol, dlerror()), exit(1);
  return found;
}

#define NIXL(name, types) ((int (*) types)look_up(#name))

static unsigned char byte_at(size_t offset) { return (unsigned char)(offset * 2654435761u >> 13); }

static int make_file(void) {
  char path[] = "/tmp/mx-fakes-XXXXXX";
  int fd = mkstemp(path);
  unlink(path);
  unsigned char *bytes = malloc(FILE_BYTES);
  for (size_t at = 0; at < FILE_BYTES; at++) bytes[at] = byte_at(at);
  IS(pwrite(fd, bytes, FILE_BYTES, 0), FILE_BYTES);
  free(bytes);
  return fd;
}

/* An agent with one plugin, a file and memory registered, a request to read the one into the other. */
struct load {
  object agent, backend, options, file_list, memory_list, request;
  int fd, memory_type;
  uintptr_t memory;
};

static object registered(struct load *load, int type, uintptr_t address, size_t size, uint64_t device, int pieces) {
  object list;
  OK(NIXL(create_reg_dlist, (int, object *, bool))(type, &list, false));
  for (int piece = 0; piece < pieces; piece++)
    OK(NIXL(reg_dlist_add_desc, (object, uintptr_t, size_t, uint64_t, const void *, size_t))(list, address + (size_t)piece * size, size, device, NULL, 0));
  OK(NIXL(register_mem, (object, object, object))(load->agent, list, load->options));
  return list;
}

static struct load open_load(const char *plugin, int memory_type, uintptr_t memory) {
  struct load load = {.fd = make_file(), .memory_type = memory_type, .memory = memory};
  object memories, parameters, local, remote;
  OK(NIXL(create_agent, (const char *, object *))("self", &load.agent));
  OK(NIXL(get_plugin_params, (object, const char *, object *, object *))(load.agent, plugin, &memories, &parameters));
  if (memory_type == VRAM) OK(NIXL(params_add, (object, const char *, const char *))(parameters, "thread_count", "4"));
  OK(NIXL(create_backend, (object, const char *, object, object *))(load.agent, plugin, parameters, &load.backend));
  OK(NIXL(destroy_mem_list, (object))(memories));
  OK(NIXL(destroy_params, (object))(parameters));
  OK(NIXL(create_opt_args, (object *))(&load.options));
  OK(NIXL(opt_args_add_backend, (object, object))(load.options, load.backend));
  load.file_list = registered(&load, FILES, 0, FILE_BYTES, (uint64_t)load.fd, 1);
  load.memory_list = registered(&load, memory_type, memory, CHUNK_BYTES, 0, CHUNKS);
  OK(NIXL(create_xfer_dlist, (int, object *, bool))(memory_type, &local, false));
  OK(NIXL(create_xfer_dlist, (int, object *, bool))(FILES, &remote, false));
  for (size_t at = 0; at < FILE_BYTES; at += CHUNK_BYTES) {
    OK(NIXL(xfer_dlist_add_desc, (object, uintptr_t, size_t, uint64_t))(local, memory + at, CHUNK_BYTES, 0));
    OK(NIXL(xfer_dlist_add_desc, (object, uintptr_t, size_t, uint64_t))(remote, at, CHUNK_BYTES, (uint64_t)load.fd));
  }
  OK(NIXL(create_xfer_req, (object, int, object, object, const char *, object *, object))(load.agent, READ, local, remote, "self", &load.request, load.options));
  OK(NIXL(destroy_xfer_dlist, (object))(local));
  OK(NIXL(destroy_xfer_dlist, (object))(remote));
  return load;
}

static int post(const struct load *load) { return NIXL(post_xfer_req, (object, object, object))(load->agent, load->request, NULL); }

/* The status at the end, or IN_PROGRESS after so long. */
static int wait_for(const struct load *load, int posted, int ms) {
  struct timespec rest = {.tv_nsec = 1000000};
  while (posted == IN_PROGRESS && ms-- > 0) {
    nanosleep(&rest, NULL);
    posted = NIXL(get_xfer_status, (object, object))(load->agent, load->request);
  }
  return posted;
}

static void release(const struct load *load) {
  OK(NIXL(release_xfer_req, (object, object))(load->agent, load->request));
  OK(NIXL(destroy_xfer_req, (object))(load->request));
}

static void close_load(const struct load *load) {
  release(load);
  OK(NIXL(deregister_mem, (object, object, object))(load->agent, load->memory_list, load->options));
  OK(NIXL(deregister_mem, (object, object, object))(load->agent, load->file_list, load->options));
  OK(NIXL(destroy_reg_dlist, (object))(load->memory_list));
  OK(NIXL(destroy_reg_dlist, (object))(load->file_list));
  OK(NIXL(destroy_opt_args, (object))(load->options));
  OK(NIXL(destroy_backend, (object))(load->backend));
  OK(NIXL(destroy_agent, (object))(load->agent));
  close(load->fd);
}

static void check_bytes(const unsigned char *bytes) {
  for (size_t at = 0; at < FILE_BYTES; at++) IS(bytes[at], byte_at(at));
}

static void posix(void) {
  unsigned char *memory = malloc(FILE_BYTES);
  struct load load = open_load("POSIX", DRAM, (uintptr_t)memory);
  OK(wait_for(&load, post(&load), 20000));
  close_load(&load);
  check_bytes(memory);
}

static void gds_mt(void) {
  start();
  CUdeviceptr memory = map_whole(FILE_BYTES);
  struct load load = open_load("GDS_MT", VRAM, memory);
  OK(wait_for(&load, post(&load), 20000));
  close_load(&load);
  unsigned char *bytes = malloc(FILE_BYTES);
  OK(cuMemcpyDtoH_v2(bytes, memory, FILE_BYTES));
  check_bytes(bytes);
  unmap_whole(memory, FILE_BYTES);
  stop();
}

/* By the plan a read fails or comes short. */
static void gds_mt_fails(void) {
  start();
  CUdeviceptr memory = map_whole(FILE_BYTES);
  struct load load = open_load("GDS_MT", VRAM, memory);
  IS(wait_for(&load, post(&load), 20000) < 0, 1);
  close_load(&load);
  unmap_whole(memory, FILE_BYTES);
  stop();
}

/* By the plan it never ends for its caller; the release does end it. */
static void gds_mt_never_ends(void) {
  start();
  CUdeviceptr memory = map_whole(FILE_BYTES);
  struct load load = open_load("GDS_MT", VRAM, memory);
  IS(wait_for(&load, post(&load), 300), IN_PROGRESS);
  close_load(&load);
  unmap_whole(memory, FILE_BYTES);
  stop();
}

/* By the plan a read hangs; the process can end all the same. */
static void gds_mt_hangs(void) {
  start();
  struct load load = open_load("GDS_MT", VRAM, map_whole(FILE_BYTES));
  IS(wait_for(&load, post(&load), 300), IN_PROGRESS);
  _exit(0);
}

static void unmap_in_flight(void) {
  start();
  CUdeviceptr memory = map_whole(FILE_BYTES);
  struct load load = open_load("GDS_MT", VRAM, memory);
  wait_for(&load, post(&load), 100);
  cuMemUnmap(memory, FILE_BYTES);
}

static void unmap_registered(void) {
  start();
  CUdeviceptr memory = map_whole(FILE_BYTES);
  open_load("GDS_MT", VRAM, memory);
  cuMemUnmap(memory, FILE_BYTES);
}

static void agent_with_registrations(void) {
  unsigned char *memory = malloc(FILE_BYTES);
  struct load load = open_load("POSIX", DRAM, (uintptr_t)memory);
  release(&load);
  NIXL(destroy_agent, (object))(load.agent);
}

static void destroy_in_flight(void) {
  start();
  struct load load = open_load("GDS_MT", VRAM, map_whole(FILE_BYTES));
  post(&load);
  NIXL(destroy_xfer_req, (object))(load.request);
}

/* UCX takes device memory of the stand-ins, as one region over one handle. */
static void ucx(void) {
  struct load load = {0};
  object memories, parameters;
  start();
  CUdeviceptr memory = map_whole(FILE_BYTES);
  OK(NIXL(create_agent, (const char *, object *))("self", &load.agent));
  OK(NIXL(get_plugin_params, (object, const char *, object *, object *))(load.agent, "UCX", &memories, &parameters));
  OK(NIXL(create_backend, (object, const char *, object, object *))(load.agent, "UCX", parameters, &load.backend));
  OK(NIXL(destroy_mem_list, (object))(memories));
  OK(NIXL(destroy_params, (object))(parameters));
  OK(NIXL(create_opt_args, (object *))(&load.options));
  OK(NIXL(opt_args_add_backend, (object, object))(load.options, load.backend));
  object list = registered(&load, VRAM, memory, FILE_BYTES, 0, 1);
  OK(NIXL(deregister_mem, (object, object, object))(load.agent, list, load.options));
  OK(NIXL(destroy_reg_dlist, (object))(list));
  OK(NIXL(destroy_opt_args, (object))(load.options));
  OK(NIXL(destroy_backend, (object))(load.backend));
  OK(NIXL(destroy_agent, (object))(load.agent));
  unmap_whole(memory, FILE_BYTES);
  stop();
}

static void planned(void) {
  object agent, list;
  IS(NIXL(create_agent, (const char *, object *))("self", &agent), -4);
  OK(NIXL(create_agent, (const char *, object *))("self", &agent));
  OK(NIXL(create_xfer_dlist, (int, object *, bool))(DRAM, &list, false));
  IS(NIXL(xfer_dlist_add_desc, (object, uintptr_t, size_t, uint64_t))(list, 4096, 1, 0), -1);
  OK(NIXL(destroy_xfer_dlist, (object))(list));
  OK(NIXL(destroy_agent, (object))(agent));
}

int main(int argc, char **argv) {
#define ROW(name) {#name, name}
  static const struct scenario scenarios[] = {
      ROW(posix), ROW(gds_mt), ROW(gds_mt_fails), ROW(gds_mt_never_ends), ROW(gds_mt_hangs), ROW(unmap_in_flight), ROW(unmap_registered),
      ROW(agent_with_registrations), ROW(destroy_in_flight), ROW(ucx), ROW(planned), {0},
  };
  return run_scenario(scenarios, argc, argv);
}
