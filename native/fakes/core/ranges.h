/*
 * Ranges of memory that something outside still holds: a read or copy in flight ("use"), or a registration ("pin"). Unmapping or freeing
 * under one of them would corrupt memory on a real machine, so it kills the process here. Called with the lock held.
 */
#ifndef MX_FAKES_RANGES_H
#define MX_FAKES_RANGES_H

#include <stddef.h>
#include <stdint.h>

struct mx_range;

enum mx_hold { MX_MOVING, MX_REGISTERED };

/* Holds [address, address + size) until mx_let_go. `why` says what is wrong with unmapping it, as "is registered with cuFile". */
struct mx_range *mx_hold(enum mx_hold kind, uint64_t address, size_t size, const char *why);
void mx_let_go(struct mx_range *range);

/* Kills the process where a part of the range is held; `what` is what the program does to it, as "unmaps". */
void mx_must_be_free(const char *what, uint64_t address, size_t size);

/* The same for bytes in flight only; a registration may stay. */
void mx_must_be_still(const char *what, uint64_t address, size_t size);

#endif
