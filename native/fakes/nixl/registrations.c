#include "registrations.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "../core/ledger.h"
#include "../core/ranges.h"

struct descriptor {
  uint64_t address, device;
  size_t size;
};

struct list {
  struct list *next;
  void *handle;
  int type;
  size_t count, room;
  struct descriptor *all;
};

struct registration {
  struct registration *next;
  void *agent;
  int type;
  struct descriptor what;
  struct mx_range *held;
  uint64_t id;
};

static struct list *lists;
static struct registration *registrations;
static uint64_t serial;

static struct list *find(void *handle) {
  struct list *at = lists;
  while (at && at->handle != handle) at = at->next;
  return at;
}

void mx_list_made(void *handle, int type) {
  struct list *made = malloc(sizeof *made);
  *made = (struct list){.next = lists, .handle = handle, .type = type};
  lists = made;
}

void mx_list_add(void *handle, uint64_t address, size_t size, uint64_t device) {
  struct list *list = find(handle);
  if (!list) return;
  if (list->count == list->room) {
    list->room = list->room ? list->room * 2 : 16;
    list->all = realloc(list->all, list->room * sizeof *list->all);
  }
  list->all[list->count++] = (struct descriptor){.address = address, .device = device, .size = size};
}

void mx_list_remove(void *handle, int index) {
  struct list *list = find(handle);
  if (!list || index < 0 || (size_t)index >= list->count) return;
  memmove(&list->all[index], &list->all[index + 1], (--list->count - (size_t)index) * sizeof *list->all);
}

void mx_list_clear(void *handle) {
  struct list *list = find(handle);
  if (list) list->count = 0;
}

void mx_list_gone(void *handle) {
  for (struct list **at = &lists; *at; at = &(*at)->next)
    if ((*at)->handle == handle) {
      struct list *gone = *at;
      *at = gone->next;
      free(gone->all);
      free(gone);
      return;
    }
}

void mx_registered(void *agent, void *handle) {
  struct list *list = find(handle);
  for (size_t at = 0; list && at < list->count; at++) {
    struct registration *made = malloc(sizeof *made);
    *made = (struct registration){.next = registrations, .agent = agent, .type = list->type, .what = list->all[at], .id = ++serial};
    if (list->type == MX_NIXL_DRAM || list->type == MX_NIXL_VRAM) made->held = mx_hold(MX_REGISTERED, made->what.address, made->what.size, "is registered with NIXL");
    registrations = made;
    mx_opened("nixl-registration", made->id, made->what.size);
  }
}

static bool same(const struct registration *one, void *agent, int type, const struct descriptor *what) {
  return one->agent == agent && one->type == type && one->what.address == what->address && one->what.size == what->size && one->what.device == what->device;
}

void mx_deregistered(void *agent, void *handle) {
  struct list *list = find(handle);
  for (size_t at = 0; list && at < list->count; at++)
    for (struct registration **link = &registrations; *link; link = &(*link)->next)
      if (same(*link, agent, list->type, &list->all[at])) {
        struct registration *gone = *link;
        *link = gone->next;
        if (gone->held) mx_let_go(gone->held);
        mx_closed("nixl-registration", gone->id);
        free(gone);
        break;
      }
}

size_t mx_registrations_of(void *agent) {
  size_t count = 0;
  for (struct registration *at = registrations; at; at = at->next) count += at->agent == agent;
  return count;
}
