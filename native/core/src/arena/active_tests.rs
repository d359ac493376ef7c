use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use super::{Activation, ActiveArena, Arena};
use crate::error::{Error, Result};
use crate::vmm::{EmptyBackend, MemoryKind, VmmBackend};

const G: usize = 2 << 20;

type Reports = Arc<Mutex<Vec<(&'static str, &'static str)>>>;

fn activation(arena: &Arc<Arena>, device: i32) -> (Activation, Reports) {
    let reports = Reports::default();
    let told = Arc::clone(&reports);
    let report = move |operation: &'static str, error: &Error| told.lock().unwrap().push((operation, error.code));
    (Activation::new(Arc::clone(arena), device, report), reports)
}

fn arena_of(granules: usize) -> Arc<Arena> {
    Arc::new(Arena::with_backend(Box::new(EmptyBackend::default()), granules * G).unwrap())
}

#[test]
fn without_an_arena_there_is_nothing() {
    let active = ActiveArena::new();
    assert_eq!(active.malloc(1, 0), None);
    active.free(0x1000);
    let arena = arena_of(4);
    active.set(Some(activation(&arena, 0).0)).unwrap();
    let address = active.malloc(1, 0).unwrap();
    active.set(None).unwrap();
    assert_eq!(active.malloc(1, 0), None);
    active.free(address);
    assert_eq!(arena.stats().live_allocation_count, 1);
}

#[test]
fn memory_comes_from_the_active_arena_and_goes_back_to_it() {
    let (active, arena) = (ActiveArena::new(), arena_of(4));
    active.set(Some(activation(&arena, -1).0)).unwrap();
    let address = active.malloc(G as isize + 1, -1).unwrap();
    assert_eq!((address, arena.stats().mapped_bytes), (arena.base(), 2 * G));
    active.free(address + 1);
    active.free(address);
    active.free(address);
    assert_eq!((arena.stats().mapped_bytes, arena.stats().used_bytes), (0, 2 * G));
}

#[test]
fn refusals_are_reported_once_per_code() {
    let (active, arena) = (ActiveArena::new(), arena_of(1));
    let (activation, reports) = activation(&arena, 0);
    active.set(Some(activation)).unwrap();
    for _ in 0..3 {
        assert_eq!([active.malloc(0, 0), active.malloc(-1, 0), active.malloc(1, 1), active.malloc(isize::MAX, 0)], [None; 4]);
    }
    arena.close().unwrap();
    assert_eq!(active.malloc(1, 0), None);
    let codes = ["ERR_ARENA_SIZE", "ERR_ARENA_DEVICE", "ERR_ARENA_EXHAUSTED", "ERR_ARENA_CLOSED"];
    assert_eq!(*reports.lock().unwrap(), codes.map(|code| ("mx_malloc", code)));
    assert_eq!(arena.stats().used_bytes, 0);
}

#[test]
fn what_a_transfer_or_a_view_holds_is_freed_with_the_last_of_them() {
    let (active, arena) = (ActiveArena::new(), arena_of(4));
    let (activation, reports) = activation(&arena, 0);
    active.set(Some(activation)).unwrap();
    let [pinned, viewed] = [(); 2].map(|()| active.malloc(1, 0).unwrap());
    let (pin, view) = (arena.pin(pinned, 1).unwrap(), arena.view(viewed + 5, 1).unwrap());
    active.free(pinned);
    active.free(viewed);
    assert_eq!(*reports.lock().unwrap(), []);
    assert_eq!(arena.stats().live_allocation_count, 2);
    drop(pin);
    assert_eq!(arena.stats().live_allocation_count, 1);
    drop(view);
    assert_eq!(arena.stats().live_allocation_count, 0);
    assert_eq!(arena.view(viewed, 1).err().map(|error| error.code), Some("ERR_ARENA_ADDRESS"));
}

#[test]
fn an_arena_that_nobody_else_has_closes_when_it_is_no_longer_active() {
    let active = ActiveArena::new();
    let (first, second) = (arena_of(4), arena_of(4));
    active.set(Some(activation(&first, 0).0)).unwrap();
    let weak = Arc::downgrade(&first);
    drop(first);
    assert!(active.malloc(1, 0).is_some());
    active.set(None).unwrap();
    assert!(weak.upgrade().is_none());
    active.set(Some(activation(&second, 0).0)).unwrap();
    assert_eq!(active.malloc(1, 0), Some(second.base()));
}

#[test]
fn another_arena_that_is_open_is_not_replaced() {
    let active = ActiveArena::new();
    let (first, second) = (arena_of(4), arena_of(4));
    active.set(Some(activation(&first, 0).0)).unwrap();
    active.set(Some(activation(&first, 1).0)).unwrap();
    let refused = active.set(Some(activation(&second, 0).0)).unwrap_err();
    assert_eq!((refused.code, active.malloc(1, 1)), ("ERR_ARENA_ACTIVE", Some(first.base())));
    assert_eq!(active.require_none_but(None).unwrap_err().code, "ERR_ARENA_ACTIVE");
    first.close().unwrap();
    active.require_none_but(None).unwrap();
    active.set(Some(activation(&second, 0).0)).unwrap();
    assert_eq!(active.malloc(1, 0), Some(second.base()));
}

/// Panics when it allocates.
struct PanickingBackend;

impl VmmBackend for PanickingBackend {
    fn reserve(&self, _total_bytes: usize) -> Result<usize> {
        Ok(G)
    }
    fn allocate(&self, _address: usize, _bytes: usize) -> Result<u64> {
        panic!("as planned")
    }
    fn deallocate(&self, _address: usize, _bytes: usize, _handle: u64) -> Result<()> {
        Ok(())
    }
    fn release_reserve(&self, _base: usize, _total_bytes: usize) -> Result<()> {
        Ok(())
    }
    fn allocation_granularity(&self) -> usize {
        G
    }
    fn memory(&self) -> MemoryKind {
        MemoryKind::None
    }
}

#[test]
fn nothing_unwinds_into_the_caller() {
    let active = ActiveArena::new();
    let arena = Arc::new(Arena::with_backend(Box::new(PanickingBackend), 4 * G).unwrap());
    active.set(Some(activation(&arena, 0).0)).unwrap();
    assert_eq!(active.malloc(1, 0), None);
    assert!(arena.close().unwrap());
}

/// Threads allocate and free while arenas are set, closed and cleared under them: every arena ends
/// with nothing alive.
#[test]
fn arenas_change_and_close_under_mallocs_in_flight() {
    let (active, stop, done) = (ActiveArena::new(), AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let kept: Vec<usize> = (0..4).filter_map(|_| active.malloc(1, 0)).collect();
                    done.fetch_add(kept.len(), Ordering::Relaxed);
                    kept.into_iter().for_each(|address| active.free(address));
                }
            });
        }
        for round in 0..200 {
            let arena = arena_of(1 << 20);
            active.set(Some(activation(&arena, 0).0)).unwrap();
            while arena.stats().used_bytes < 20 * G {
                thread::yield_now();
            }
            if round % 2 == 1 || arena.close().is_err() {
                active.set(None).unwrap();
            }
            // Calls that began in it are few, and end.
            while arena.close().map_err(|error| error.code) == Err("ERR_ARENA_BUSY") {
                thread::yield_now();
            }
            assert!(arena.stats().closed);
            assert_eq!(arena.stats().live_allocation_count, 0);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(done.load(Ordering::Relaxed) > 0);
}
