#define _GNU_SOURCE
#include "ledger.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_CORRUPT = 66, LOW_DESCRIPTORS = 700 };

static int file = -1;

/* The status that a function answered last: a call that only asks again, and hears the same, is not written again. */
static _Atomic long last_status[MX_FUNCTIONS];

static bool asks_again(enum mx_function function) {
  switch (function) {
    case F_cuStreamQuery:
    case F_cuEventQuery:
    case F_cudaStreamQuery:
    case F_nixl_capi_get_xfer_status:
      return true;
    default:
      return false;
  }
}

__attribute__((constructor(102))) static void open_file(void) {
  const char *path = getenv("MX_FAKES_LEDGER");
  for (int function = 0; function < MX_FUNCTIONS; function++) last_status[function] = INT32_MIN;
  if (!path) return;
  int low = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (low < 0) {
    fprintf(stderr, "mx-fakes: MX_FAKES_LEDGER: cannot open '%s'\n", path);
    _exit(64);
  }
  /* Out of the way of the program's own numbers. */
  file = fcntl(low, F_DUPFD_CLOEXEC, LOW_DESCRIPTORS);
  if (file < 0) file = low;
  else close(low);
}

static void line(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void line(const char *format, ...) {
  if (file < 0) return;
  char text[640];
  int head = snprintf(text, sizeof text, "{\"pid\":%d,\"thread\":%d,", getpid(), gettid());
  va_list values;
  va_start(values, format);
  int body = vsnprintf(text + head, sizeof text - (size_t)head - 2, format, values);
  va_end(values);
  size_t length = (size_t)(head + body) < sizeof text - 3 ? (size_t)(head + body) : sizeof text - 3;
  memcpy(text + length, "}\n", 2);
  if (write(file, text, length + 2) < 0) return;
}

void mx_ledger_call(enum mx_function function, unsigned n, long status, const char *facts) {
  if (asks_again(function) && atomic_exchange(&last_status[function], status) == status) return;
  line("\"call\":\"%s\",\"n\":%u,\"status\":%ld,\"facts\":\"%s\"", mx_function_name(function), n, status, facts);
}

void mx_ledger_fault(enum mx_function function, unsigned n, const char *action) {
  line("\"fault\":\"%s\",\"n\":%u,\"action\":\"%s\"", mx_function_name(function), n, action);
}

void mx_opened(const char *kind, uint64_t id, size_t bytes) {
  line("\"opened\":\"%s\",\"id\":\"0x%" PRIx64 "\",\"bytes\":%zu", kind, id, bytes);
}

void mx_closed(const char *kind, uint64_t id) { line("\"closed\":\"%s\",\"id\":\"0x%" PRIx64 "\"", kind, id); }

void mx_ledger_loaded(const char *file) { line("\"loaded\":\"%.400s\"", file); }

void mx_ledger_count(const char *name, size_t amount) { line("\"count\":\"%s\",\"amount\":%zu", name, amount); }

void mx_kill(const char *format, ...) {
  char text[400];
  va_list values;
  va_start(values, format);
  vsnprintf(text, sizeof text, format, values);
  va_end(values);
  line("\"killed\":\"%s\"", text);
  dprintf(STDERR_FILENO, "mx-fakes: killed: %s\n", text);
  _exit(EXIT_CORRUPT);
}

__attribute__((destructor)) static void ended(void) { line("\"ended\":true"); }
