/* The functions of NIXL's C interface that make, register, move or end something: forwarded, and written to the ledger. */
#include <stdbool.h>
#include <stdlib.h>

#include "../core/call.h"
#include "../core/ledger.h"
#include "real.h"
#include "registrations.h"

#define EXPORT __attribute__((visibility("default")))

enum { SUCCESS = 0, IN_PROGRESS = 1 };

typedef void *object;

/* Enters a call, and forwards it without the lock, unless it shall fail: then the real library hears nothing of it. */
#define FORWARD(name, types, ...) \
  struct mx_call call; \
  bool planned = mx_enter(&call, F_nixl_capi_##name); \
  int status = (int)call.planned; \
  if (!planned) { \
    mx_unlock(); \
    status = ((int (*) types)mx_nixl_real(F_nixl_capi_##name))(__VA_ARGS__); \
    mx_lock(); \
  }

#define LEAVE() return (int)mx_leave(&call, status)

/* An object that the call made is open from now on. */
#define OPENED(kind, place) \
  if (!planned && status == SUCCESS && (place) && *(place)) mx_opened(kind, (uintptr_t)*(place), 0)

/* A function that ends an object. It is closed before, since its address may be given out again at once. */
#define DESTROY(name, kind, before) \
  EXPORT int nixl_capi_##name(object one) { \
    struct mx_call call; \
    bool planned = mx_enter(&call, F_nixl_capi_##name); \
    int status = (int)call.planned; \
    if (!planned) { \
      before; \
      mx_closed(kind, (uintptr_t)one); \
      mx_unlock(); \
      status = ((int (*)(object))mx_nixl_real(F_nixl_capi_##name))(one); \
      mx_lock(); \
      if (status) mx_opened(kind, (uintptr_t)one, 0); \
    } \
    LEAVE(); \
  }

/* A transfer that was posted and is not known to be over. */
struct transfer {
  struct transfer *next;
  object request;
};
static struct transfer *transfers;

static bool in_flight(object request) {
  for (struct transfer *at = transfers; at; at = at->next)
    if (at->request == request) return true;
  return false;
}

static void transfer_begins(object request) {
  if (in_flight(request)) return;
  struct transfer *made = malloc(sizeof *made);
  *made = (struct transfer){.next = transfers, .request = request};
  transfers = made;
  mx_opened("nixl-transfer", (uintptr_t)request, 0);
}

static void transfer_ends(object request) {
  for (struct transfer **at = &transfers; *at; at = &(*at)->next)
    if ((*at)->request == request) {
      struct transfer *gone = *at;
      *at = gone->next;
      free(gone);
      mx_closed("nixl-transfer", (uintptr_t)request);
      return;
    }
}

static void must_be_empty(object agent) {
  size_t count = mx_registrations_of(agent);
  if (count) mx_kill("the program destroys a NIXL agent that still has %zu registered descriptors", count);
}

static void must_be_over(object request) {
  if (in_flight(request)) mx_kill("the program destroys a NIXL request in flight before it was released");
}

EXPORT int nixl_capi_create_agent(const char *name, object *agent) {
  FORWARD(create_agent, (const char *, object *), name, agent);
  OPENED("nixl-agent", agent);
  LEAVE();
}

EXPORT int nixl_capi_create_configured_agent(const char *name, const void *config, object *agent) {
  FORWARD(create_configured_agent, (const char *, const void *, object *), name, config, agent);
  OPENED("nixl-agent", agent);
  LEAVE();
}

DESTROY(destroy_agent, "nixl-agent", must_be_empty(one))

EXPORT int nixl_capi_get_available_plugins(object agent, object *list) {
  FORWARD(get_available_plugins, (object, object *), agent, list);
  OPENED("nixl-list", list);
  LEAVE();
}

DESTROY(destroy_string_list, "nixl-list", )
DESTROY(destroy_mem_list, "nixl-list", )

EXPORT int nixl_capi_get_plugin_params(object agent, const char *plugin, object *memories, object *parameters) {
  FORWARD(get_plugin_params, (object, const char *, object *, object *), agent, plugin, memories, parameters);
  mx_facts(&call, "plugin=%.40s", plugin ? plugin : "");
  OPENED("nixl-list", memories);
  OPENED("nixl-parameters", parameters);
  LEAVE();
}

EXPORT int nixl_capi_get_backend_params(object agent, object backend, object *memories, object *parameters) {
  FORWARD(get_backend_params, (object, object, object *, object *), agent, backend, memories, parameters);
  OPENED("nixl-list", memories);
  OPENED("nixl-parameters", parameters);
  LEAVE();
}

EXPORT int nixl_capi_create_params(object *parameters) {
  FORWARD(create_params, (object *), parameters);
  OPENED("nixl-parameters", parameters);
  LEAVE();
}

DESTROY(destroy_params, "nixl-parameters", )

EXPORT int nixl_capi_create_backend(object agent, const char *plugin, object parameters, object *backend) {
  FORWARD(create_backend, (object, const char *, object, object *), agent, plugin, parameters, backend);
  mx_facts(&call, "plugin=%.40s", plugin ? plugin : "");
  OPENED("nixl-backend", backend);
  LEAVE();
}

DESTROY(destroy_backend, "nixl-backend", )

EXPORT int nixl_capi_create_opt_args(object *options) {
  FORWARD(create_opt_args, (object *), options);
  OPENED("nixl-options", options);
  LEAVE();
}

DESTROY(destroy_opt_args, "nixl-options", )

/* Older versions take a third argument, whether the list is sorted. */
EXPORT int nixl_capi_create_reg_dlist(int type, object *list, bool sorted) {
  FORWARD(create_reg_dlist, (int, object *, bool), type, list, sorted);
  OPENED("nixl-list", list);
  if (!planned && status == SUCCESS) mx_list_made(*list, type);
  LEAVE();
}

EXPORT int nixl_capi_reg_dlist_add_desc(object list, uintptr_t address, size_t size, uint64_t device, const void *metadata, size_t metadata_size) {
  FORWARD(reg_dlist_add_desc, (object, uintptr_t, size_t, uint64_t, const void *, size_t), list, address, size, device, metadata, metadata_size);
  if (!planned && status == SUCCESS) mx_list_add(list, address, size, device);
  LEAVE();
}

EXPORT int nixl_capi_reg_dlist_rem_desc(object list, int index) {
  FORWARD(reg_dlist_rem_desc, (object, int), list, index);
  if (!planned && status == SUCCESS) mx_list_remove(list, index);
  LEAVE();
}

EXPORT int nixl_capi_reg_dlist_clear(object list) {
  FORWARD(reg_dlist_clear, (object), list);
  if (!planned && status == SUCCESS) mx_list_clear(list);
  LEAVE();
}

DESTROY(destroy_reg_dlist, "nixl-list", mx_list_gone(one))

EXPORT int nixl_capi_create_xfer_dlist(int type, object *list, bool sorted) {
  FORWARD(create_xfer_dlist, (int, object *, bool), type, list, sorted);
  OPENED("nixl-list", list);
  LEAVE();
}

DESTROY(destroy_xfer_dlist, "nixl-list", )

EXPORT int nixl_capi_register_mem(object agent, object list, object options) {
  FORWARD(register_mem, (object, object, object), agent, list, options);
  if (!planned && status == SUCCESS) mx_registered(agent, list);
  LEAVE();
}

EXPORT int nixl_capi_deregister_mem(object agent, object list, object options) {
  FORWARD(deregister_mem, (object, object, object), agent, list, options);
  if (!planned && status == SUCCESS) mx_deregistered(agent, list);
  LEAVE();
}

EXPORT int nixl_capi_create_xfer_req(object agent, int operation, object local, object remote, const char *name, object *request, object options) {
  FORWARD(create_xfer_req, (object, int, object, object, const char *, object *, object), agent, operation, local, remote, name, request, options);
  OPENED("nixl-request", request);
  LEAVE();
}

/* In flight from before the real call: its threads begin inside it. */
EXPORT int nixl_capi_post_xfer_req(object agent, object request, object options) {
  struct mx_call call;
  bool planned = mx_enter(&call, F_nixl_capi_post_xfer_req);
  int status = (int)call.planned;
  if (!planned) {
    transfer_begins(request);
    mx_unlock();
    status = ((int (*)(object, object, object))mx_nixl_real(F_nixl_capi_post_xfer_req))(agent, request, options);
    mx_lock();
    if (status != IN_PROGRESS) transfer_ends(request);
  }
  LEAVE();
}

EXPORT int nixl_capi_get_xfer_status(object agent, object request) {
  FORWARD(get_xfer_status, (object, object), agent, request);
  if (!planned && status == SUCCESS) transfer_ends(request);
  LEAVE();
}

EXPORT int nixl_capi_release_xfer_req(object agent, object request) {
  FORWARD(release_xfer_req, (object, object), agent, request);
  if (!planned && status == SUCCESS) transfer_ends(request);
  LEAVE();
}

DESTROY(destroy_xfer_req, "nixl-request", must_be_over(one))
