"""malloc + free of the original arena (modelexpress) from Python over a backend that does nothing. Prints the median of several rounds."""

import importlib.util
import json
import statistics
import sys
import time
import types

# The package's own __init__ imports its gRPC client and more; the arena needs none of that.
package = types.ModuleType("modelexpress")
package.__path__ = list(importlib.util.find_spec("modelexpress").submodule_search_locations)
sys.modules["modelexpress"] = package
from modelexpress.vmm.arena import VmmArena  # noqa: E402

PAIRS = 100_000
ROUNDS = 15
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


def ns_per_pair():
    arena = VmmArena(backend=EmptyBackend(), device=0)
    malloc, free = arena.malloc, arena.free
    start = time.perf_counter_ns()
    for _ in range(PAIRS):
        free(malloc(SIZE))
    ns = time.perf_counter_ns() - start
    arena.close()
    return ns / PAIRS


ns_per_pair()
rounds = [ns_per_pair() for _ in range(ROUNDS)]
print(json.dumps({"nsPerPair": statistics.median(rounds), "leastNsPerPair": min(rounds)}))
