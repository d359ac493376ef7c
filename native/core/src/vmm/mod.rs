//! Backends that own memory.
