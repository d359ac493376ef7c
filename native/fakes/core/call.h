/*
 * The frame of every exported function: count the call, do what is planned for it, hold the lock over all state, log the outcome.
 *
 *   struct mx_call call;
 *   if (mx_enter(&call, F_cuMemCreate)) return mx_leave(&call, call.planned);
 *   ...
 *   return mx_leave(&call, status);
 */
#ifndef MX_FAKES_CALL_H
#define MX_FAKES_CALL_H

#include <stdbool.h>
#include <stddef.h>

#include "functions.h"

struct mx_call {
  enum mx_function function;
  unsigned n;
  long planned;       /* the planned status, where there is one */
  size_t short_bytes; /* most bytes that a read or write may move */
  char facts[160];
};

/* Blocks or hangs where that is planned, then takes the lock. True where the call shall fail with `planned` and do nothing. */
bool mx_enter(struct mx_call *call, enum mx_function function);

/* Adds words to the call's line in the ledger. */
void mx_facts(struct mx_call *call, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Logs the call with its status, lets the lock go, and gives the status back. */
long mx_leave(struct mx_call *call, long status);

/* For work inside a call that may take long: other threads go on meanwhile. */
void mx_unlock(void);
void mx_lock(void);

/* Waits, without the lock, until mx_changed() was called. */
void mx_wait(void);
void mx_changed(void);

#endif
