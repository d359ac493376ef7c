"""One trial of one peer: bring the machine into the wanted state, time the load, compare the bytes, print one JSON line.

A peer is a script that ends in ``run(load)``. ``load(files)`` returns ``[(name, buffer), ...]`` with every byte in process memory and every page
touched; ``buffer`` is a torch tensor or a numpy array. The job comes as JSON in the first argument:
``{"files": [...], "prepare": [...], "compare": true, "settings": {...}}``.
"""

import json
import subprocess
import sys
import tempfile
import time

import numpy as np


def job() -> dict:
    return json.loads(sys.argv[1])


def prepare(task: dict) -> dict:
    """Runs the command that primes memory and warms or drops the files; right before the timing, in a child."""
    if not task["prepare"]:
        return {}
    return json.loads(subprocess.run(task["prepare"], check=True, capture_output=True, text=True).stdout)


def read_header(path: str) -> tuple[dict, int]:
    """The header as a dict, and the file offset of the first data byte."""
    with open(path, "rb") as f:
        length = int.from_bytes(f.read(8), "little")
        header = json.loads(f.read(length))
    header.pop("__metadata__", None)
    return header, 8 + length


def peak_bytes() -> int:
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM:"))


def flat_bytes(buffer) -> np.ndarray:
    if isinstance(buffer, np.ndarray):
        return buffer.reshape(-1).view(np.uint8)
    import torch

    return buffer.reshape(-1).view(torch.uint8).numpy()


def compare(files: list[str], loaded: list) -> int:
    """Holds every tensor against its file. Returns the bytes compared; raises at the first difference, or when a tensor is missing."""
    got = dict(loaded)
    total = 0
    for path in files:
        header, start = read_header(path)
        data = np.memmap(path, dtype=np.uint8, mode="r")
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            total += end - begin
            if end == begin:
                continue
            actual = flat_bytes(got[name])
            if actual.size != end - begin:
                raise AssertionError(f"{name}: {actual.size} bytes instead of {end - begin}")
            for at in range(0, actual.size, 16 << 20):
                if not np.array_equal(actual[at : at + (16 << 20)], data[start + begin + at : start + min(end, begin + at + (16 << 20))]):
                    raise AssertionError(f"{name}: bytes differ in the 16 MiB from byte {at}")
    return total


def first_call(load) -> None:
    """Loads a file with one small tensor: what a library sets up at its first call belongs to the imports, as with every system here."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/first.safetensors"
        header = json.dumps({"t": {"dtype": "F32", "shape": [1024], "data_offsets": [0, 4096]}}).encode()
        header += b" " * (-len(header) % 8)
        with open(path, "wb") as f:
            f.write(len(header).to_bytes(8, "little") + header + bytes(4096))
        load([path])


def run(load) -> None:
    task = job()
    first_call(load)
    state = prepare(task)
    start = time.perf_counter()
    loaded = load(task["files"])
    seconds = time.perf_counter() - start
    peak = peak_bytes()
    total = compare(task["files"], loaded) if task["compare"] else sum(flat_bytes(b).size for _, b in loaded)
    print(json.dumps({"seconds": seconds, "bytes": total, "peakBytes": peak, "state": state}))
    sys.stdout.flush()
