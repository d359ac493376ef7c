"""Opening with safetensors: safe_open, then shape and dtype of every tensor; repeated in one process. Prints the least and the median."""

import json
import statistics
import time

from safetensors import safe_open
from trial import job

task = job()
seconds = []
for _ in range(task["settings"]["repeats"]):
    start = time.perf_counter()
    count = 0
    for path in task["files"]:
        with safe_open(path, framework="numpy") as f:
            for name in f.keys():
                view = f.get_slice(name)
                view.get_shape()
                view.get_dtype()
                count += 1
    seconds.append(time.perf_counter() - start)
print(json.dumps({"seconds": statistics.median(seconds), "leastSeconds": min(seconds), "firstSeconds": seconds[0], "tensors": count, "bytes": 0}))
