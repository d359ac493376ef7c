#define _GNU_SOURCE
#include "call.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ledger.h"
#include "plan.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static atomic_uint calls[MX_FUNCTIONS];

void mx_lock(void) { pthread_mutex_lock(&lock); }
void mx_unlock(void) { pthread_mutex_unlock(&lock); }
void mx_wait(void) { pthread_cond_wait(&changed, &lock); }
void mx_changed(void) { pthread_cond_broadcast(&changed); }

static void sleep_ms(size_t ms) {
  struct timespec rest = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
  while (nanosleep(&rest, &rest)) continue;
}

bool mx_enter(struct mx_call *call, enum mx_function function) {
  call->function = function;
  call->n = atomic_fetch_add(&calls[function], 1) + 1;
  call->facts[0] = 0;
  struct mx_fault fault = mx_planned(function, call->n);
  if (fault.hang) {
    mx_ledger_fault(function, call->n, "hang");
    for (;;) pause();
  }
  if (fault.block_ms) {
    mx_ledger_fault(function, call->n, "block");
    sleep_ms(fault.block_ms);
  }
  call->short_bytes = fault.shortened ? fault.short_bytes : SIZE_MAX;
  if (fault.shortened) mx_ledger_fault(function, call->n, "short");
  if (fault.fails) mx_ledger_fault(function, call->n, "status");
  call->planned = fault.status;
  mx_lock();
  return fault.fails;
}

void mx_facts(struct mx_call *call, const char *format, ...) {
  size_t length = strlen(call->facts);
  va_list values;
  va_start(values, format);
  vsnprintf(call->facts + length, sizeof call->facts - length, format, values);
  va_end(values);
}

long mx_leave(struct mx_call *call, long status) {
  mx_ledger_call(call->function, call->n, status, call->facts);
  mx_unlock();
  return status;
}
