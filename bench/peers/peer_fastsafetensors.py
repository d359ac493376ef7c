"""fastsafetensors on the host (nogds). FASTSAFETENSORS_ODIRECT in the environment picks direct or buffered reads."""

import fastsafetensors
from fastsafetensors.frameworks import get_framework_op
from trial import run

get_framework_op("pytorch")  # imports torch, which belongs to the imports
kept = []


def load(files):
    loader = fastsafetensors.SafeTensorsFileLoader(pg=None, device="cpu", nogds=True)
    loader.add_filenames({0: files})
    buffers = loader.copy_files_to_device()
    kept.extend((loader, buffers))
    return [(name, buffers.get_tensor(name)) for name in loader.get_keys()]


run(load)
