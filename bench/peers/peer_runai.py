"""runai-model-streamer. RUNAI_STREAMER_FS_STRATEGY in the environment picks how it reads; without a memory limit it keeps what it read."""

from runai_model_streamer import SafetensorsStreamer
from trial import run

kept = []


def load(files):
    streamer = SafetensorsStreamer()
    kept.append(streamer)
    streamer.__enter__()
    streamer.stream_files(files)
    return list(streamer.get_tensors())


run(load)
