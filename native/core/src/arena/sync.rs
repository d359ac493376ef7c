//! The synchronisation the arena uses: the standard library's, or loom's where every interleaving is tried.

#[cfg(not(loom))]
pub(super) use std::sync::{Mutex, MutexGuard, atomic::AtomicUsize};

#[cfg(loom)]
pub(super) use loom::sync::{Mutex, MutexGuard, atomic::AtomicUsize};

pub(super) use std::sync::atomic::Ordering;

/// Two cache lines: adjacent-line prefetch couples them on x86-64, and some arm64 lines are this long.
#[repr(align(128))]
pub(super) struct Padded<T>(pub T);

#[cfg(not(loom))]
pub(super) fn stripe_count() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    (4 * cores).next_power_of_two().clamp(8, 64)
}

#[cfg(loom)]
pub(super) fn stripe_count() -> usize {
    2
}

/// A small number that differs between threads as far as possible. Numbers go round, so threads that ended leave no gap.
#[cfg(not(loom))]
pub(super) fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed));
    // A destructor of another thread-local may call in when ours is gone already.
    NUMBER.try_with(|number| *number).unwrap_or(0)
}

#[cfg(loom)]
loom::thread_local!(static NUMBER: std::cell::Cell<usize> = std::cell::Cell::new(0));

#[cfg(loom)]
pub(super) fn thread_number() -> usize {
    NUMBER.with(|number| number.get())
}

/// Models say themselves which threads share a stripe.
#[cfg(all(test, loom))]
pub(super) fn set_thread_number(number: usize) {
    NUMBER.with(|own| own.set(number));
}
