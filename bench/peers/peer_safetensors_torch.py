"""safetensors into torch. settings.backend: "mmap" is the lazy default; settings.touch then reads one byte of every page."""

import safetensors.torch
import torch
from trial import job, run

settings = job()["settings"]


def touch(storage):
    """Reads one byte of every page."""
    return torch.tensor([], dtype=torch.uint8).set_(storage)[::4096].sum()


touch(torch.zeros(1 << 16, dtype=torch.uint8).untyped_storage())  # torch sets up its threads at the first call


def load(files):
    loaded = []
    for path in files:
        tensors = safetensors.torch.load_file(path, backend=settings["backend"])
        if settings.get("touch"):
            # All tensors of a mapped file share one storage: touching it whole costs one call a file instead of one a tensor.
            for storage in {t.untyped_storage().data_ptr(): t.untyped_storage() for t in tensors.values()}.values():
                touch(storage)
        loaded.extend(tensors.items())
    return loaded


run(load)
