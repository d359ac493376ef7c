/* Registered files, reading and writing. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../core/plan.h"
#include "state.h"

static struct mx_file *files;

MX_EXPORT CUfileError_t cuFileHandleRegister(CUfileHandle_t *handle, CUfileDescr_t *description) {
  ENTER(cuFileHandleRegister);
  REFUSE_IF(!handle || !description, CU_FILE_INVALID_VALUE);
  REFUSE_IF(description->type != CU_FILE_HANDLE_TYPE_OPAQUE_FD, CU_FILE_IO_NOT_SUPPORTED);
  int fd = description->handle.fd, flags = fcntl(fd, F_GETFL);
  mx_facts(&call, "fd=%d", fd);
  struct stat facts;
  REFUSE_IF(flags < 0 || fstat(fd, &facts), CU_FILE_INVALID_VALUE);
  REFUSE_IF(!S_ISREG(facts.st_mode) && !S_ISBLK(facts.st_mode), CU_FILE_INVALID_FILE_TYPE);
  mx_cufile_open_driver();
  for (struct mx_file *at = files; at; at = at->next) REFUSE_IF(at->registered && at->fd == fd, CU_FILE_HANDLE_ALREADY_REGISTERED);
  REFUSE_IF(mx_settings.gds == MX_GDS_REFUSED, CU_FILE_INTERNAL_ERROR);
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  int own = open(path, (flags & O_ACCMODE) | O_CLOEXEC);
  REFUSE_IF(own < 0, CU_FILE_GETNEWFD_FAILED);
  struct mx_file *made = malloc(sizeof *made);
  *made = (struct mx_file){.next = files, .registered = true, .fd = fd, .own = own, .device = facts.st_dev, .inode = facts.st_ino};
  files = made;
  *handle = made;
  mx_opened("cufile-file", (uintptr_t)made, (size_t)facts.st_size);
  return LEAVE(CU_FILE_SUCCESS);
}

static struct mx_file *known(CUfileHandle_t handle) {
  struct mx_file *at = files;
  while (at && at != handle) at = at->next;
  return at;
}

/* It answers nothing, so what is wrong must kill. */
MX_EXPORT void cuFileHandleDeregister(CUfileHandle_t handle) {
  struct mx_call call;
  if (mx_enter(&call, F_cuFileHandleDeregister)) {
    mx_leave(&call, call.planned);
    return;
  }
  struct mx_file *file = known(handle);
  if (!file || !file->registered) mx_kill("the program deregisters a file handle that is not registered");
  if (file->in_flight) mx_kill("the program deregisters the file of descriptor %d with %u reads or writes in flight", file->fd, file->in_flight);
  file->registered = false;
  close(file->own);
  mx_closed("cufile-file", (uintptr_t)file);
  mx_leave(&call, CU_FILE_SUCCESS);
}

/* 0, or why the file cannot be used. */
static int check_file(CUfileHandle_t handle) {
  struct mx_file *file = known(handle);
  struct stat facts;
  if (!file) return CU_FILE_HANDLE_NOT_REGISTERED;
  if (!file->registered) mx_kill("the program uses a cuFile handle after it was deregistered");
  if (fstat(file->fd, &facts) || facts.st_dev != file->device || facts.st_ino != file->inode)
    mx_kill("the program uses a cuFile handle whose descriptor %d was closed or is another file now", file->fd);
  return CU_FILE_SUCCESS;
}

/* The buffer that holds the bytes must reach that far; an unregistered base goes by cuFile's own buffers. */
static int check_buffer(uint64_t base, off_t offset, size_t size, unsigned access) {
  struct mx_buffer *buffer = mx_buffer_at(base);
  if (buffer && ((size_t)offset > buffer->size || size > buffer->size - (size_t)offset)) return CU_FILE_INVALID_MAPPING_RANGE;
  return mx_check_memory(base + (uint64_t)offset, size, access);
}

static const char *path_taken(uint64_t base, off_t offset, size_t size, off_t file_offset) {
  if (mx_settings.gds == MX_GDS_COMPAT) return "compat";
  bool aligned = (base + (uint64_t)offset) % 4096 == 0 && size % 4096 == 0 && file_offset % 4096 == 0;
  return mx_buffer_at(base) && aligned ? "direct" : "bounce";
}

static ssize_t move_all(int fd, char *memory, size_t size, off_t offset, bool write) {
  size_t done = 0;
  while (done < size) {
    ssize_t moved = write ? pwrite(fd, memory + done, size - done, offset + (off_t)done) : pread(fd, memory + done, size - done, offset + (off_t)done);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) return -1;
    if (!moved) break;
    done += (size_t)moved;
  }
  return (ssize_t)done;
}

static ssize_t work(enum mx_function function, CUfileHandle_t handle, void *pointer, size_t size, off_t file_offset, off_t offset, bool write) {
  uint64_t base = (uintptr_t)pointer;
  struct mx_call call;
  /* The memory is in use from here on, whatever is planned for this call. */
  mx_lock();
  struct mx_range *held = mx_hold(MX_MOVING, base + (uint64_t)offset, size, write ? "is written to a file by cuFile" : "is read into by cuFile");
  mx_opened("cufile-io", (uintptr_t)held, size);
  mx_cufile_io(1);
  struct mx_file *file = known(handle);
  if (file) file->in_flight++;
  mx_unlock();

  bool planned = mx_enter(&call, function);
  mx_facts(&call, "base=0x%llx size=%zu file=%lld", (unsigned long long)base, size, (long long)file_offset);
  int status = planned ? (int)call.planned : CU_FILE_SUCCESS;
  if (!status && (!handle || !base || file_offset < 0 || offset < 0)) status = CU_FILE_INVALID_VALUE;
  if (!status) status = check_file(handle);
  if (!status && size) status = check_buffer(base, offset, size, write ? CU_MEM_ACCESS_FLAGS_PROT_READ : CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  ssize_t moved = -status;
  int problem = 0;
  if (!status) {
    const char *path = path_taken(base, offset, size, file_offset);
    size_t most = size < call.short_bytes ? size : call.short_bytes;
    mx_unlock();
    moved = move_all(file->own, (char *)pointer + offset, most, file_offset, write);
    problem = errno;
    mx_lock();
    if (moved > 0) mx_ledger_count(path, (size_t)moved);
  }
  mx_closed("cufile-io", (uintptr_t)held);
  mx_let_go(held);
  mx_cufile_io(-1);
  if (file) file->in_flight--;
  mx_leave(&call, moved);
  if (moved == -1) errno = problem;
  return moved;
}

/* The bytes read, fewer at the end of the file; -1 with errno, or minus a cuFile status. */
MX_EXPORT ssize_t cuFileRead(CUfileHandle_t handle, void *base, size_t size, off_t file_offset, off_t buffer_offset) {
  return work(F_cuFileRead, handle, base, size, file_offset, buffer_offset, false);
}

MX_EXPORT ssize_t cuFileWrite(CUfileHandle_t handle, const void *base, size_t size, off_t file_offset, off_t buffer_offset) {
  return work(F_cuFileWrite, handle, (void *)(uintptr_t)base, size, file_offset, buffer_offset, true);
}
