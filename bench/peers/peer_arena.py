"""malloc + free of the original arena (modelexpress) from Python over a backend that does nothing. Prints the median of several rounds."""

import json
import statistics
import time

from original_arena import SIZE, empty_arena

PAIRS = 100_000
ROUNDS = 15


def ns_per_pair():
    arena = empty_arena()
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
