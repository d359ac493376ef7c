"""The arena of the original (modelexpress), imported without its package's __init__, which brings a gRPC client and more; and an empty backend."""

import importlib.util
import sys
import types

package = types.ModuleType("modelexpress")
package.__path__ = list(importlib.util.find_spec("modelexpress").submodule_search_locations)
sys.modules["modelexpress"] = package
from modelexpress.vmm import _alloc_ext as alloc_ext  # noqa: E402, F401
from modelexpress.vmm.arena import VmmArena  # noqa: E402

SIZE = 2 << 20


class EmptyBackend:
    def reserve(self, total_bytes):
        return 0x10_0000_0000_0000

    def allocate(self, va, size):
        return 1

    def deallocate(self, va, size, handle):
        pass

    def release_reserve(self, base, total_bytes):
        pass

    def allocation_granularity(self):
        return SIZE


def empty_arena():
    return VmmArena(backend=EmptyBackend(), device=0)
