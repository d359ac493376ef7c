/* What the parts of libcufile.so.0 share. Lock held. */
#ifndef MX_FAKES_CUFILE_STATE_H
#define MX_FAKES_CUFILE_STATE_H

#include <sys/stat.h>

#include "../core/call.h"
#include "../core/ledger.h"
#include "../core/ranges.h"
#include "abi.h"

/* A registered file. Never freed, so that a stale handle is recognised. */
struct mx_file {
  struct mx_file *next;
  bool registered;
  int fd;         /* the program's */
  int own;        /* opened here, without O_DIRECT */
  dev_t device;   /* which file the program's descriptor was */
  ino_t inode;
  unsigned in_flight;
};

/* A registered buffer. */
struct mx_buffer {
  struct mx_buffer *next;
  uint64_t base;
  size_t size;
  struct mx_range *held;
};

/* The real one opens its driver at the first registration, if the program did not. */
void mx_cufile_open_driver(void);

/* Counts reads and writes in flight: +1, -1. */
void mx_cufile_io(int change);

/* The buffer registered with this very base, or NULL. */
struct mx_buffer *mx_buffer_at(uint64_t base);

/* 0 where [address, address + size) can be read into (or written from) by cuFile, else the status. */
int mx_check_memory(uint64_t address, size_t size, unsigned access);

CUfileError_t mx_cufile_leave(struct mx_call *call, int status);

#define ENTER(name) \
  struct mx_call call; \
  if (mx_enter(&call, F_##name)) return mx_cufile_leave(&call, (int)call.planned)

#define LEAVE(status) mx_cufile_leave(&call, (status))

#define REFUSE_IF(condition, status) \
  if (condition) return LEAVE(status)

#endif
