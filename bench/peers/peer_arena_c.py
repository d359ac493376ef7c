"""mx_malloc + mx_free of the original (modelexpress), called from C on one and on two threads, over a backend that does nothing.

The loop is that of test/support/c-caller.c. Its threads are Python's, which spares the original the thread state that each call would
otherwise make on a thread of C: measured that way it is slower by far. Prints the medians of several rounds.
"""

import ctypes
import json
import pathlib
import statistics
import subprocess
import threading
import time

from original_arena import SIZE, alloc_ext, empty_arena

PAIRS = 100_000
ROUNDS = 15

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / ".cache" / "bench" / "c-caller.so"
PROGRAM.parent.mkdir(parents=True, exist_ok=True)
SOURCE = ROOT / "test" / "support" / "c-caller.c"
subprocess.run(["cc", "-O2", "-DWITHOUT_NODE", "-shared", "-fPIC", "-pthread", "-o", PROGRAM, SOURCE, "-ldl"], check=True)
c_caller_pairs = ctypes.CDLL(str(PROGRAM)).c_caller_pairs
c_caller_pairs.restype = ctypes.c_bool
c_caller_pairs.argtypes = [ctypes.c_char_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_size_t]


def ns_per_pair(count):
    arena = empty_arena()
    alloc_ext.set_active_arena(arena.capsule)
    outcomes = []

    def work():
        outcomes.append(c_caller_pairs(alloc_ext.__file__.encode(), 1 << 20, 0, PAIRS))

    threads = [threading.Thread(target=work) for _ in range(count)]
    start = time.perf_counter_ns()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ns = time.perf_counter_ns() - start
    assert outcomes == [True] * count and arena.live_allocation_count == 0 and arena.used_bytes == count * PAIRS * SIZE
    alloc_ext.set_active_arena(None)
    arena.close()
    return ns / (count * PAIRS)


def measured(threads):
    ns_per_pair(threads)
    median = statistics.median(ns_per_pair(threads) for _ in range(ROUNDS))
    return {"nsPerPair": median, "pairsPerSecond": round(1e9 / median)}


print(json.dumps({"oneThread": measured(1), "twoThreads": measured(2)}))
