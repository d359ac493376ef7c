"""Prints the versions of Python and of the installed peers as JSON."""

import importlib.metadata
import json
import platform

versions = {"python": platform.python_version()}
for name in ("safetensors", "torch", "numpy", "ml-dtypes", "fastsafetensors", "runai-model-streamer", "nixl-cu12", "modelexpress"):
    try:
        versions[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(versions))
