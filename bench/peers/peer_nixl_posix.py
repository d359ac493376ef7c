"""NIXL's POSIX plugin reading whole data sections into huge pages. NIXL has no loader of its own, so this is the least that one would need.

settings.api: "use_aio" or "use_uring"; settings.direct: O_DIRECT; settings.blockBytes: size of one descriptor. The agent is made before the
timing, as a server would make it once; opening, header, mapping, registration and transfer are timed.
"""

import mmap
import os

import numpy as np
from nixl_cu12 import nixl_agent, nixl_agent_config
from trial import job, read_header, run

HUGE = 2 << 20
settings = job()["settings"]
agent = nixl_agent("bench", nixl_agent_config(backends=[]))
agent.create_backend("POSIX", {name: "true" if name == settings["api"] else "false" for name in ("use_aio", "use_uring")})
kept = []


def load(files):
    sizes = [os.path.getsize(path) for path in files]
    places = np.concatenate(([0], np.cumsum([(size + HUGE - 1) // HUGE * HUGE for size in sizes])))
    region = mmap.mmap(-1, int(places[-1]) + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    region.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(region, dtype=np.uint8)
    skip = -whole.ctypes.data % HUGE
    base = whole.ctypes.data + skip
    local, remote, descriptors = [], [], []
    block = settings["blockBytes"]
    for path, size, place in zip(files, sizes, places):
        fd = os.open(path, os.O_RDONLY | (os.O_DIRECT if settings["direct"] else 0))
        descriptors.append(fd)
        for at in range(0, size, block):
            length = min(block, size - at)
            tail = length % 4096 if settings["direct"] else 0  # read buffered below: a short direct read is an error to the plugin
            if length > tail:
                local.append((base + int(place) + at, length - tail, 0))
                remote.append((at, length - tail, fd))
            if tail:
                whole_fd = os.open(path, os.O_RDONLY)
                os.preadv(whole_fd, [memoryview(whole)[skip + int(place) + size - tail : skip + int(place) + size]], size - tail)
                os.close(whole_fd)
    memory = agent.register_memory([(base, int(places[-1]), 0, "")], "DRAM", backends=["POSIX"])
    opened = agent.register_memory([(0, size, fd, "") for size, fd in zip(sizes, descriptors)], "FILE", backends=["POSIX"])
    handle = agent.initialize_xfer(
        "READ", agent.get_xfer_descs(local, "DRAM"), agent.get_xfer_descs(remote, "FILE"), agent.name, backends=["POSIX"]
    )
    state = agent.transfer(handle)
    while state == "PROC":
        state = agent.check_xfer_state(handle)
    if state != "DONE":
        raise RuntimeError(f"transfer ended as {state}")
    agent.release_xfer_handle(handle)
    agent.deregister_memory(opened, backends=["POSIX"])
    agent.deregister_memory(memory, backends=["POSIX"])
    for fd in descriptors:
        os.close(fd)
    kept.append(region)
    loaded = []
    for path, place in zip(files, places):
        header, start = read_header(path)
        first = skip + int(place) + start
        loaded.extend((name, whole[first + e["data_offsets"][0] : first + e["data_offsets"][1]]) for name, e in header.items())
    return loaded


run(load)
os._exit(0)
