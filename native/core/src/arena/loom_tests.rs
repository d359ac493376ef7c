//! Every interleaving of two or three threads:
//! `RUSTFLAGS="--cfg loom" cargo test -p mx-core --release --lib arena::loom`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use loom::thread;

use super::{Allocation, Arena};
use crate::error::Result;
use crate::vmm::{MemoryKind, VmmBackend};

const BASE: usize = 0x10_0000;
const GRANULE: usize = 4096;

/// Counts calls, and fails on any that the order of life forbids. Its counters are no part of the
/// model: loom looks at the arena only.
#[derive(Default)]
struct Counts {
    allocated: AtomicUsize,
    deallocated: AtomicUsize,
    released: AtomicUsize,
}

struct CountingBackend(Arc<Counts>);

impl VmmBackend for CountingBackend {
    fn reserve(&self, _total_bytes: usize) -> Result<usize> {
        Ok(BASE)
    }
    fn allocate(&self, _address: usize, _bytes: usize) -> Result<u64> {
        assert_eq!(self.0.released.load(Relaxed), 0, "allocate after release");
        thread::yield_now();
        self.0.allocated.fetch_add(1, Relaxed);
        Ok(7)
    }
    fn deallocate(&self, _address: usize, _bytes: usize, handle: u64) -> Result<()> {
        assert_eq!((handle, self.0.released.load(Relaxed)), (7, 0), "deallocate after release");
        thread::yield_now();
        self.0.deallocated.fetch_add(1, Relaxed);
        Ok(())
    }
    fn release_reserve(&self, _base: usize, _total_bytes: usize) -> Result<()> {
        assert_eq!(self.0.allocated.load(Relaxed), self.0.deallocated.load(Relaxed), "something is still mapped");
        self.0.released.fetch_add(1, Relaxed);
        Ok(())
    }
    fn allocation_granularity(&self) -> usize {
        GRANULE
    }
    fn memory(&self) -> MemoryKind {
        MemoryKind::None
    }
}

fn new_arena() -> (Arc<Arena>, Arc<Counts>) {
    let counts = Arc::<Counts>::default();
    let backend = Box::new(CountingBackend(Arc::clone(&counts)));
    (Arc::new(Arena::with_backend(backend, 8 * GRANULE).unwrap()), counts)
}

/// Runs `work` in another thread of the model.
fn spawn<T: 'static>(arena: &Arc<Arena>, work: impl FnOnce(Arc<Arena>) -> T + 'static) -> thread::JoinHandle<T> {
    let arena = Arc::clone(arena);
    thread::spawn(move || work(arena))
}

fn finished(counts: &Counts) -> [usize; 3] {
    [&counts.allocated, &counts.deallocated, &counts.released].map(|count| count.load(Relaxed))
}

#[test]
fn two_mallocs_get_two_addresses() {
    loom::model(move || {
        let (arena, counts) = new_arena();
        let other = spawn(&arena, |arena| arena.malloc(1).unwrap());
        let mut addresses = [arena.malloc(1).unwrap(), other.join().unwrap()];
        addresses.sort();
        assert_eq!(addresses, [BASE, BASE + GRANULE]);
        assert_eq!(arena.stats().live_allocation_count, 2);
        assert!(arena.close().unwrap());
        assert_eq!(finished(&counts), [2, 2, 1]);
    });
}

#[test]
fn the_last_fit_goes_to_one_of_two() {
    loom::model(|| {
        let (arena, counts) = new_arena();
        let other = spawn(&arena, |arena| arena.malloc(5 * GRANULE).is_ok());
        let got = [arena.malloc(8 * GRANULE).is_ok(), other.join().unwrap()];
        assert!(got[0] != got[1]);
        drop(arena);
        assert_eq!(finished(&counts), [1, 1, 1]);
    });
}

/// Closes beside work of another thread, once more at its end where that stood in the way.
fn closed_beside<T>(arena: &Arena, other: thread::JoinHandle<T>) -> T {
    let first = arena.close().map_err(|error| error.code);
    let outcome = other.join().unwrap();
    match first {
        Ok(closed) => assert!(closed),
        Err(code) => {
            assert_eq!(code, "ERR_ARENA_BUSY");
            assert!(arena.close().unwrap());
        }
    }
    outcome
}

#[test]
fn a_malloc_beside_a_close_is_refused_or_given_back() {
    loom::model(move || {
        let (arena, counts) = new_arena();
        let other = spawn(&arena, |arena| arena.malloc(1).map_err(|error| error.code));
        let outcome = closed_beside(&arena, other);
        assert!(matches!(outcome, Ok(BASE) | Err("ERR_ARENA_CLOSED")));
        let mapped = usize::from(outcome.is_ok());
        assert_eq!(finished(&counts), [mapped, mapped, 1]);
        assert_eq!(arena.stats().live_allocation_count, 0);
    });
}

#[test]
fn one_of_two_frees_gives_back() {
    loom::model(move || {
        let (arena, counts) = new_arena();
        let address = arena.malloc(1).unwrap();
        let other = spawn(&arena, move |arena| arena.free(address).unwrap());
        let freed = [arena.free(address).unwrap(), other.join().unwrap()];
        assert!(freed[0] != freed[1]);
        assert_eq!(finished(&counts), [1, 1, 0]);
        arena.close().unwrap();
        assert_eq!(finished(&counts), [1, 1, 1]);
    });
}

#[test]
fn a_free_beside_a_close_gives_back_once() {
    loom::model(move || {
        let (arena, counts) = new_arena();
        let address = arena.malloc(1).unwrap();
        let other = spawn(&arena, move |arena| arena.free(address).unwrap());
        closed_beside(&arena, other);
        assert_eq!(finished(&counts), [1, 1, 1]);
    });
}

#[test]
fn one_of_two_closes_does_it() {
    loom::model(|| {
        let (arena, counts) = new_arena();
        arena.malloc(1).unwrap();
        let other = spawn(&arena, |arena| arena.close().unwrap());
        let closed = [arena.close().unwrap(), other.join().unwrap()];
        assert!(closed[0] != closed[1]);
        assert_eq!(finished(&counts), [1, 1, 1]);
    });
}

#[test]
fn a_pin_beside_a_free_holds_or_fails() {
    loom::model(move || {
        let (arena, counts) = new_arena();
        let address = arena.malloc(1).unwrap();
        let other = spawn(&arena, move |arena| arena.free(address).map_err(|error| error.code));
        match arena.pin(address, GRANULE) {
            Ok(pin) => {
                let outcome = other.join().unwrap();
                assert_eq!(outcome, Err("ERR_ARENA_BUSY"));
                assert_eq!(arena.containing(address, 1), Some(Allocation { address, bytes: GRANULE, handle: 7 }));
                drop(pin);
                assert!(arena.free(address).unwrap());
            }
            Err(error) => {
                assert_eq!(error.code, "ERR_ARENA_ADDRESS");
                assert_eq!(other.join().unwrap(), Ok(true));
            }
        }
        assert_eq!(finished(&counts), [1, 1, 0]);
    });
}

#[test]
fn a_pin_beside_a_close_holds_or_fails() {
    loom::model(move || {
        let (arena, counts) = new_arena();
        let address = arena.malloc(1).unwrap();
        let other = spawn(&arena, |arena| arena.close().map_err(|error| error.code));
        match arena.pin(address, 1) {
            Ok(pin) => {
                assert_eq!(other.join().unwrap(), Err("ERR_ARENA_BUSY"));
                assert!(!arena.stats().closed);
                assert_eq!(finished(&counts), [1, 0, 0]);
                drop(pin);
                assert!(arena.close().unwrap());
            }
            Err(error) => {
                assert_eq!(error.code, "ERR_ARENA_CLOSED");
                assert_eq!(other.join().unwrap(), Ok(true));
            }
        }
        assert_eq!(finished(&counts), [1, 1, 1]);
    });
}

#[test]
fn the_last_pin_keeps_the_memory_of_a_dropped_arena() {
    loom::model(|| {
        let (arena, counts) = new_arena();
        let address = arena.malloc(1).unwrap();
        let pin = arena.pin(address, 1).unwrap();
        let counts_there = Arc::clone(&counts);
        let other = thread::spawn(move || {
            assert_eq!(finished(&counts_there), [1, 0, 0]);
            drop(pin);
        });
        drop(arena);
        other.join().unwrap();
        assert_eq!(finished(&counts), [1, 1, 1]);
    });
}

#[test]
fn a_free_beside_the_last_pin_gives_back_once() {
    loom::model(move || {
        let (arena, counts) = new_arena();
        let address = arena.malloc(1).unwrap();
        let pin = arena.pin(address, 1).unwrap();
        let other = spawn(&arena, move |_arena| drop(pin));
        assert!(arena.free_when_unheld(address).unwrap());
        other.join().unwrap();
        assert_eq!(finished(&counts), [1, 1, 0]);
        assert!(arena.close().unwrap());
        assert_eq!(finished(&counts), [1, 1, 1]);
    });
}

#[test]
fn a_last_view_beside_a_close_gives_back_once() {
    for freed in [false, true] {
        loom::model(move || {
            let (arena, counts) = new_arena();
            let address = arena.malloc(1).unwrap();
            let view = arena.view(address, 1).unwrap();
            if freed {
                assert!(arena.free(address).unwrap());
            }
            let other = spawn(&arena, move |_arena| drop(view));
            closed_beside(&arena, other);
            assert_eq!(finished(&counts), [1, 1, 1]);
        });
    }
}
