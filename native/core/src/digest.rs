//! SHA-256 of memory and files.
