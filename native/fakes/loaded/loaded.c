/* Part of every stand-in: says in the ledger which file was loaded, so that a test can tell it from a real driver. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "../core/ledger.h"

__attribute__((constructor)) static void loaded(void) {
  Dl_info own;
  if (dladdr((void *)loaded, &own)) mx_ledger_loaded(own.dli_fname);
}
