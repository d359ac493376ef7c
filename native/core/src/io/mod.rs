//! Moving bytes from files into memory.
