//! Locks of what `loom` tries under every interleaving: the standard library's, or loom's there.

#[cfg(not(loom))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, atomic::AtomicBool};

#[cfg(loom)]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard, atomic::AtomicBool};
