/*
 * A record of all that happens, appended line by line (JSON) to the file that MX_FAKES_LEDGER names, so that it is whole however the
 * process ends. Whoever reads it sums up what was opened and not closed.
 */
#ifndef MX_FAKES_LEDGER_H
#define MX_FAKES_LEDGER_H

#include <stddef.h>
#include <stdint.h>

#include "functions.h"

/* One finished call. */
void mx_ledger_call(enum mx_function function, unsigned n, long status, const char *facts);

/* A planned fault takes effect. */
void mx_ledger_fault(enum mx_function function, unsigned n, const char *action);

/* Something of a kind ("mapping", "stream", ...) exists from now on; id is unique in its kind while it is open. */
void mx_opened(const char *kind, uint64_t id, size_t bytes);
void mx_closed(const char *kind, uint64_t id);

/* A stand-in was loaded from this file. */
void mx_ledger_loaded(const char *file);

/* A count that stands for something no call shows, such as bytes read on one path. */
void mx_ledger_count(const char *name, size_t amount);

/* The program did what the real library would answer with corruption: says so, and ends the process with exit code 66. */
void mx_kill(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

#endif
