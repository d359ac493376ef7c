//! The synchronisation the arena uses: the standard library's, or loom's where every interleaving is tried.

#[cfg(not(loom))]
pub(super) use std::sync::{Mutex, MutexGuard};

#[cfg(loom)]
pub(super) use loom::sync::{Mutex, MutexGuard};
