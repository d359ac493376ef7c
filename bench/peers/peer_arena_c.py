"""mx_malloc + mx_free of the original (modelexpress), called from C on one and on two threads, over a backend that does nothing.

The loop is that of test/support/c-caller.c. Its threads are Python's, which spares the original the thread state that each call would
otherwise make on a thread of C: measured that way it is slower by far. Prints the medians of several rounds.
"""

import ctypes
import importlib.util
import json
import pathlib
import statistics
import subprocess
import sys
import threading
import time
import types

# The package's own __init__ imports its gRPC client and more; the arena needs none of that.
package = types.ModuleType("modelexpress")
package.__path__ = list(importlib.util.find_spec("modelexpress").submodule_search_locations)
sys.modules["modelexpress"] = package
from modelexpress.vmm import _alloc_ext  # noqa: E402
from modelexpress.vmm.arena import VmmArena  # noqa: E402

PAIRS = 100_000
ROUNDS = 15
SIZE = 2 << 20

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / ".cache" / "bench" / "c-caller.so"
PROGRAM.parent.mkdir(parents=True, exist_ok=True)
SOURCE = ROOT / "test" / "support" / "c-caller.c"
subprocess.run(["cc", "-O2", "-DWITHOUT_NODE", "-shared", "-fPIC", "-pthread", "-o", PROGRAM, SOURCE, "-ldl"], check=True)
c_caller_pairs = ctypes.CDLL(str(PROGRAM)).c_caller_pairs
c_caller_pairs.restype = ctypes.c_bool
c_caller_pairs.argtypes = [ctypes.c_char_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_size_t]


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


def ns_per_pair(count):
    arena = VmmArena(backend=EmptyBackend(), device=0)
    _alloc_ext.set_active_arena(arena.capsule)
    outcomes = []

    def work():
        outcomes.append(c_caller_pairs(_alloc_ext.__file__.encode(), 1 << 20, 0, PAIRS))

    threads = [threading.Thread(target=work) for _ in range(count)]
    start = time.perf_counter_ns()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ns = time.perf_counter_ns() - start
    assert outcomes == [True] * count and arena.live_allocation_count == 0 and arena.used_bytes == count * PAIRS * SIZE
    _alloc_ext.set_active_arena(None)
    arena.close()
    return ns / (count * PAIRS)


def measured(threads):
    ns_per_pair(threads)
    median = statistics.median(ns_per_pair(threads) for _ in range(ROUNDS))
    return {"nsPerPair": median, "pairsPerSecond": round(1e9 / median)}


print(json.dumps({"oneThread": measured(1), "twoThreads": measured(2)}))
