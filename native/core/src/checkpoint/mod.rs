//! Headers and indexes of safetensors checkpoints.
