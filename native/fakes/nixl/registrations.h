/* What NIXL agents have registered, descriptor by descriptor, and what is in the lists that are built for it. Lock held. */
#ifndef MX_FAKES_NIXL_REGISTRATIONS_H
#define MX_FAKES_NIXL_REGISTRATIONS_H

#include <stddef.h>
#include <stdint.h>

enum { MX_NIXL_DRAM = 0, MX_NIXL_VRAM = 1 };

void mx_list_made(void *list, int type);
void mx_list_add(void *list, uint64_t address, size_t size, uint64_t device);
void mx_list_remove(void *list, int index);
void mx_list_clear(void *list);
void mx_list_gone(void *list);

/* Every descriptor of the list; memory is held against unmapping until it is deregistered. */
void mx_registered(void *agent, void *list);
void mx_deregistered(void *agent, void *list);

/* How many descriptors an agent has registered. */
size_t mx_registrations_of(void *agent);

#endif
