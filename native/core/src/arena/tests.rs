//! The contract, case by case, over a backend that counts and fails as planned; and real threads
//! over it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;

use super::{Arena, Holes, Stats};
use crate::error::{Error, Result};
use crate::vmm::{HostBackend, MemoryKind, VmmBackend};

pub(super) const BASE: usize = 0x7000_0000_0000;

/// Keeps the books, panics on whatever the contract rules out, and fails calls when told to.
pub(super) struct PlannedBackend {
    granularity: usize,
    mapped: Mutex<BTreeMap<usize, usize>>,
    released: AtomicBool,
    fail_allocate: AtomicBool,
    panic_in_allocate: AtomicBool,
    fail_deallocate: AtomicBool,
    fail_release: AtomicBool,
    /// What `allocate` waits for, once, after it said that it is there.
    gate: Mutex<Option<(mpsc::Sender<()>, mpsc::Receiver<()>)>>,
}

impl PlannedBackend {
    pub fn new(granularity: usize) -> Self {
        PlannedBackend {
            granularity,
            mapped: Mutex::default(),
            released: AtomicBool::default(),
            fail_allocate: AtomicBool::default(),
            panic_in_allocate: AtomicBool::default(),
            fail_deallocate: AtomicBool::default(),
            fail_release: AtomicBool::default(),
            gate: Mutex::default(),
        }
    }

    pub fn fail_next_allocate(&self, fails: bool) {
        self.fail_allocate.store(fails, SeqCst);
    }

    pub fn mapped(&self) -> Vec<(usize, usize)> {
        self.mapped.lock().unwrap().iter().map(|(address, bytes)| (*address, *bytes)).collect()
    }

    pub fn released(&self) -> bool {
        self.released.load(SeqCst)
    }
}

impl VmmBackend for Arc<PlannedBackend> {
    fn reserve(&self, total_bytes: usize) -> Result<usize> {
        assert_eq!(total_bytes % self.granularity, 0);
        Ok(BASE)
    }
    fn allocate(&self, address: usize, bytes: usize) -> Result<u64> {
        assert!(!self.released());
        let gate = self.gate.lock().unwrap().take();
        if let Some((arrived, opened)) = gate {
            arrived.send(()).unwrap();
            opened.recv().unwrap();
        }
        assert!(!self.panic_in_allocate.swap(false, SeqCst), "planned");
        if self.fail_allocate.swap(false, SeqCst) {
            return Err(Error::new("ERR_ARENA_OUT_OF_MEMORY", "planned"));
        }
        assert!(self.mapped.lock().unwrap().insert(address, bytes).is_none());
        Ok(address as u64 ^ 1)
    }
    fn deallocate(&self, address: usize, bytes: usize, handle: u64) -> Result<()> {
        assert!(!self.released());
        assert_eq!(handle, address as u64 ^ 1);
        assert_eq!(self.mapped.lock().unwrap().remove(&address), Some(bytes));
        if self.fail_deallocate.load(SeqCst) {
            return Err(Error::new("ERR_ARENA_RELEASE_FAILED", format!("planned for {address:#x}")));
        }
        Ok(())
    }
    fn release_reserve(&self, base: usize, _total_bytes: usize) -> Result<()> {
        assert_eq!(base, BASE);
        assert!(self.mapped.lock().unwrap().is_empty());
        assert!(!self.released.swap(true, SeqCst));
        if self.fail_release.load(SeqCst) {
            return Err(Error::new("ERR_ARENA_RELEASE_FAILED", "planned for the reserve"));
        }
        Ok(())
    }
    fn allocation_granularity(&self) -> usize {
        self.granularity
    }
    fn memory(&self) -> MemoryKind {
        MemoryKind::None
    }
}

fn new_arena(granularity: usize, total_bytes: usize) -> (Arc<Arena>, Arc<PlannedBackend>) {
    let backend = Arc::new(PlannedBackend::new(granularity));
    let arena = Arena::with_backend(Box::new(Arc::clone(&backend)), total_bytes).unwrap();
    (Arc::new(arena), backend)
}

fn code<T>(outcome: Result<T>) -> &'static str {
    outcome.err().map_or("no error", |error| error.code)
}

#[test]
fn the_reserve_is_rounded_up_and_nothing_is_allocated() {
    let (arena, backend) = new_arena(4096, 4097);
    assert_eq!((arena.base(), arena.total_bytes(), arena.granularity()), (BASE, 8192, 4096));
    assert_eq!(arena.stats(), Stats { used_bytes: 0, mapped_bytes: 0, live_allocation_count: 0, pins: 0, closed: false });
    assert!(backend.mapped().is_empty());
}

#[test]
fn sizes_and_granularities_that_make_no_sense_are_refused() {
    let reserve = |granularity, total_bytes| code(Arena::with_backend(Box::new(Arc::new(PlannedBackend::new(granularity))), total_bytes));
    assert_eq!(reserve(4096, 0), "ERR_ARENA_SIZE");
    assert_eq!(reserve(4096, usize::MAX), "ERR_ARENA_SIZE");
    assert_eq!(reserve(0, 1), "ERR_ARENA_GRANULARITY");
    assert_eq!(reserve(4097, 1), "ERR_ARENA_GRANULARITY");
    assert_eq!(code(Arena::external(usize::MAX - 4095, 8192, 4096, MemoryKind::None)), "ERR_ARENA_SIZE");
}

#[test]
fn addresses_ascend_from_the_base_and_are_never_reused() {
    let (arena, _) = new_arena(4096, 8 * 4096);
    assert_eq!(arena.malloc(1).unwrap(), BASE);
    assert_eq!(arena.malloc(4097).unwrap(), BASE + 4096);
    assert!(arena.free(BASE).unwrap());
    assert!(arena.free(BASE + 4096).unwrap());
    assert_eq!(arena.malloc(4096).unwrap(), BASE + 3 * 4096);
    let stats = arena.stats();
    assert_eq!((stats.used_bytes, stats.mapped_bytes, stats.live_allocation_count), (4 * 4096, 4096, 1));
}

#[test]
fn the_exact_last_fit_succeeds_and_what_goes_past_it_does_not() {
    let (arena, backend) = new_arena(4096, 4 * 4096);
    arena.malloc(2 * 4096).unwrap();
    assert_eq!(code(arena.malloc(2 * 4096 + 1)), "ERR_ARENA_EXHAUSTED");
    assert_eq!(code(arena.malloc(usize::MAX)), "ERR_ARENA_EXHAUSTED");
    assert_eq!(arena.malloc(2 * 4096).unwrap(), BASE + 2 * 4096);
    assert_eq!(code(arena.malloc(1)), "ERR_ARENA_EXHAUSTED");
    assert_eq!(backend.mapped().len(), 2);
    assert_eq!(arena.stats().used_bytes, 4 * 4096);
}

#[test]
fn a_failing_allocate_loses_its_piece_of_address_space_only() {
    let (arena, backend) = new_arena(4096, 4 * 4096);
    backend.fail_next_allocate(true);
    assert_eq!(code(arena.malloc(1)), "ERR_ARENA_OUT_OF_MEMORY");
    let stats = arena.stats();
    assert_eq!((stats.used_bytes, stats.mapped_bytes, stats.live_allocation_count), (4096, 0, 0));
    assert_eq!(arena.malloc(1).unwrap(), BASE + 4096);
    assert!(arena.close().unwrap());
}

#[test]
fn freeing_what_is_unknown_does_nothing() {
    let (arena, _) = new_arena(4096, 4 * 4096);
    let address = arena.malloc(4096).unwrap();
    assert!(!arena.free(address + 1).unwrap());
    assert!(!arena.free(0).unwrap());
    assert!(arena.free(address).unwrap());
    assert!(!arena.free(address).unwrap());
}

#[test]
fn a_record_is_gone_also_when_its_deallocate_fails() {
    let (arena, backend) = new_arena(4096, 4 * 4096);
    let address = arena.malloc(4096).unwrap();
    backend.fail_deallocate.store(true, SeqCst);
    assert_eq!(code(arena.free(address)), "ERR_ARENA_RELEASE_FAILED");
    assert_eq!(arena.stats().live_allocation_count, 0);
    assert!(!arena.free(address).unwrap());
    assert!(arena.close().unwrap());
}

#[test]
fn close_goes_on_after_errors_and_raises_the_first() {
    let (arena, backend) = new_arena(4096, 4 * 4096);
    arena.malloc(1).unwrap();
    arena.malloc(1).unwrap();
    backend.fail_deallocate.store(true, SeqCst);
    backend.fail_release.store(true, SeqCst);
    let error = arena.close().unwrap_err();
    assert_eq!(error.message, format!("planned for {BASE:#x}"));
    assert!(backend.mapped().is_empty() && backend.released());
    assert!(!arena.close().unwrap());
    assert!(arena.stats().closed);
    assert_eq!(code(arena.malloc(1)), "ERR_ARENA_CLOSED");
    assert!(!arena.free(BASE).unwrap());
}

#[test]
fn close_beside_a_malloc_in_flight_is_busy_and_changes_nothing() {
    let (arena, backend) = new_arena(4096, 4 * 4096);
    let (arrived_sender, arrived) = mpsc::channel();
    let (open, open_receiver) = mpsc::channel();
    *backend.gate.lock().unwrap() = Some((arrived_sender, open_receiver));
    let there = Arc::clone(&arena);
    let allocating = thread::spawn(move || there.malloc(1));
    arrived.recv().unwrap();
    assert_eq!(code(arena.close()), "ERR_ARENA_BUSY");
    assert_eq!(arena.malloc(1).unwrap(), BASE + 4096);
    open.send(()).unwrap();
    assert_eq!(allocating.join().unwrap().unwrap(), BASE);
    assert!(arena.close().unwrap());
    assert!(backend.mapped().is_empty() && backend.released());
}

#[test]
fn a_backend_that_panics_loses_its_piece_of_address_space_only() {
    let (arena, backend) = new_arena(4096, 4 * 4096);
    backend.panic_in_allocate.store(true, SeqCst);
    let there = Arc::clone(&arena);
    assert!(thread::spawn(move || there.malloc(1)).join().is_err());
    assert_eq!(arena.malloc(1).unwrap(), BASE + 4096);
    assert!(arena.close().unwrap());
    assert!(backend.mapped().is_empty() && backend.released());
}

#[test]
fn what_was_taken_or_closed_is_given_back_when_it_is_dropped() {
    let (arena, backend) = new_arena(4096, 4 * 4096);
    let address = arena.malloc(1).unwrap();
    arena.malloc(1).unwrap();
    let taken = Arena::take(&*arena, address).unwrap().unwrap();
    assert_eq!(backend.mapped().len(), 2);
    drop(taken);
    assert_eq!(backend.mapped(), [(BASE + 4096, 4096)]);
    let closing = Arena::begin_close(Arc::clone(&arena)).unwrap().unwrap();
    assert!(arena.stats().closed && !backend.released());
    drop(closing);
    assert!(backend.mapped().is_empty() && backend.released());
}

#[test]
fn the_address_space_goes_with_the_last_that_gives_memory_back() {
    let (arena, backend) = new_arena(4096, 4 * 4096);
    let [unseen, seen] = [(); 2].map(|()| arena.malloc(1).unwrap());
    let view = arena.view(seen, 1).unwrap();
    let taken = [unseen, seen].map(|address| Arena::take(&*arena, address).unwrap().unwrap());
    assert!(arena.close().unwrap());
    drop(view);
    assert_eq!((backend.mapped(), backend.released()), (vec![(unseen, 4096), (seen, 4096)], false));
    let [first, second] = taken;
    first.give_back().unwrap();
    assert_eq!((backend.mapped(), backend.released()), (vec![(seen, 4096)], false));
    second.give_back().unwrap();
    assert_eq!((backend.mapped(), backend.released()), (vec![], true));
}

#[test]
fn a_free_of_what_is_pinned_or_seen_waits_for_the_last_of_both() {
    let (arena, backend) = new_arena(4096, 8 * 4096);
    let address = arena.malloc(4096).unwrap();
    let holds = (arena.pin(address, 1).unwrap(), arena.view(address, 1).unwrap(), arena.pin(address, 4096).unwrap());
    assert!(arena.free_when_unheld(address).unwrap());
    assert!(!arena.free_when_unheld(address).unwrap());
    assert!(!arena.free(address).unwrap());
    assert_eq!(code(arena.pin(address, 1)), "ERR_ARENA_ADDRESS");
    assert!(arena.living().allocations.is_empty());
    assert_eq!((arena.stats().mapped_bytes, arena.stats().pins), (4096, 2));
    drop(holds.0);
    assert_eq!(code(arena.close()), "ERR_ARENA_BUSY");
    drop(holds.2);
    assert_eq!(backend.mapped(), [(address, 4096)]);
    drop(holds.1);
    assert!(backend.mapped().is_empty());
    assert_eq!(arena.stats().mapped_bytes, 0);
    assert!(arena.close().unwrap());
}

#[test]
fn a_view_keeps_the_memory_of_its_allocation_beyond_free_and_close() {
    let (arena, backend) = new_arena(4096, 8 * 4096);
    let [freed, seen, other] = [(); 3].map(|()| arena.malloc(4096).unwrap());
    let [of_freed, first, second] = [freed, seen, seen].map(|address| arena.view(address + 8, 8).unwrap());
    assert!(arena.free(freed).unwrap());
    assert_eq!(code(arena.view(freed, 1)), "ERR_ARENA_ADDRESS");
    assert!(arena.close().unwrap());
    assert_eq!(backend.mapped(), [(freed, 4096), (seen, 4096)]);
    assert_eq!(arena.stats().mapped_bytes, 2 * 4096);
    assert!(!arena.free(other).unwrap());
    drop(first);
    drop(of_freed);
    assert_eq!(backend.mapped(), [(seen, 4096)]);
    assert!(!backend.released());
    drop(arena);
    drop(second);
    assert!(backend.mapped().is_empty() && backend.released());
}

#[test]
fn views_that_end_between_the_halves_of_free_and_close_keep_nothing() {
    let (arena, backend) = new_arena(4096, 8 * 4096);
    let [freed, closed] = [(); 2].map(|()| arena.malloc(4096).unwrap());
    let views = [freed, closed].map(|address| arena.view(address, 1).unwrap());
    let [of_freed, of_closed] = views;
    let taken = Arena::take(&*arena, freed).unwrap().unwrap();
    drop(of_freed);
    assert_eq!(backend.mapped().len(), 2);
    taken.give_back().unwrap();
    assert_eq!(backend.mapped(), [(closed, 4096)]);
    let closing = Arena::begin_close(&*arena).unwrap().unwrap();
    drop(of_closed);
    assert_eq!(backend.mapped(), [(closed, 4096)]);
    assert!(closing.finish().is_empty());
    assert!(backend.mapped().is_empty() && backend.released());
}

#[test]
fn of_memory_that_is_still_seen_only_the_pages_seen_are_kept() {
    let arena = Arc::new(Arena::with_backend(Box::new(HostBackend::new()), 1 << 21).unwrap());
    let address = arena.malloc(1 << 21).unwrap();
    // SAFETY: the arena has just mapped it for us, and nothing else refers to it.
    let bytes = unsafe { std::slice::from_raw_parts_mut(address as *mut u8, 1 << 21) };
    bytes.fill(7);
    arena.drop_all_but(address, 1 << 21, &[(address + 8000, 300), (address + 8100, 5), (address + 20_000, 1)]);
    let kept = |at: usize| bytes[at] == 7;
    let page = crate::sys::page_bytes();
    if page == 4096 {
        assert_eq!(
            [0, 4095, 4096, 12_287, 12_288, 16_383, 16_384, 20_479, 20_480, (1 << 21) - 1].map(kept),
            [false, false, true, true, false, false, true, true, false, false]
        );
    }
}

#[test]
fn a_pin_holds_its_allocation_and_the_arena() {
    let (arena, backend) = new_arena(4096, 8 * 4096);
    let address = arena.malloc(2 * 4096).unwrap();
    let other = arena.malloc(1).unwrap();
    let pin = arena.pin(address + 100, 4096).unwrap();
    let second = arena.pin(address, 2 * 4096).unwrap();
    let busy = arena.free(address).unwrap_err();
    assert_eq!(busy.code, "ERR_ARENA_BUSY");
    assert_eq!(code(arena.close()), "ERR_ARENA_BUSY");
    assert!(!arena.stats().closed);
    assert_eq!(arena.stats().pins, 2);
    assert!(arena.free(other).unwrap());
    drop(pin);
    assert_eq!(code(arena.free(address)), "ERR_ARENA_BUSY");
    drop(arena);
    assert!(!backend.released());
    assert!(second.arena().stats().pins == 1);
    drop(second);
    assert!(backend.mapped().is_empty() && backend.released());
}

#[test]
fn only_what_is_inside_one_live_allocation_can_be_pinned() {
    let (arena, _) = new_arena(4096, 8 * 4096);
    let first = arena.malloc(4096).unwrap();
    let second = arena.malloc(4096).unwrap();
    for (address, length) in [(first, 4097), (first + 1, 4096), (BASE - 1, 1), (second + 4096, 1), (0, 0), (first, usize::MAX)] {
        assert_eq!(code(arena.pin(address, length)), "ERR_ARENA_ADDRESS", "{address:#x} + {length}");
    }
    assert!(arena.pin(first + 4095, 1).is_ok());
    arena.free(first).unwrap();
    assert_eq!(code(arena.pin(first, 1)), "ERR_ARENA_ADDRESS");
    arena.close().unwrap();
    assert_eq!(code(arena.pin(second, 1)), "ERR_ARENA_CLOSED");
}

#[test]
fn an_arena_without_a_native_backend_is_driven_from_outside() {
    let arena = Arc::new(Arena::external(BASE, 10_000, 4096, MemoryKind::Host).unwrap());
    assert!(arena.host_memory());
    assert_eq!(arena.total_bytes(), 3 * 4096);
    assert_eq!(code(arena.malloc(1)), "ERR_INTERNAL");
    let claim = arena.claim(5000).unwrap();
    assert_eq!((claim.address, claim.bytes), (BASE, 8192));
    arena.commit(claim, 42);
    arena.abandon(arena.claim(1).unwrap());
    assert_eq!(code(arena.claim(1)), "ERR_ARENA_EXHAUSTED");
    let taken = Arena::take(&*arena, BASE).unwrap().unwrap();
    assert_eq!(taken.into_allocation().unwrap().handle, 42);
    assert!(Arena::take(&*arena, BASE).unwrap().is_none());
    assert_eq!(Arena::begin_close(&*arena).unwrap().unwrap().into_allocations(), []);
    assert!(Arena::begin_close(&*arena).unwrap().is_none());
}

#[test]
fn threads_share_an_arena_and_free_for_each_other() {
    const THREADS: usize = 4;
    const EACH: usize = 2000;
    let (arena, backend) = new_arena(4096, THREADS * EACH * 4096);
    let start = Arc::new(Barrier::new(THREADS));
    let workers: Vec<_> = (0..THREADS)
        .map(|_| {
            let (arena, start) = (Arc::clone(&arena), Arc::clone(&start));
            thread::spawn(move || {
                start.wait();
                (0..EACH).map(|_| arena.malloc(1).unwrap()).collect::<Vec<_>>()
            })
        })
        .collect();
    let addresses: Vec<Vec<usize>> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
    let mut all: Vec<usize> = addresses.concat();
    all.sort_unstable();
    assert_eq!(all, (0..THREADS * EACH).map(|at| BASE + at * 4096).collect::<Vec<_>>());
    for ascending in &addresses {
        assert!(ascending.is_sorted());
    }
    let workers: Vec<_> = (0..THREADS)
        .map(|thread| {
            // Each frees what its neighbour allocated, and everybody tries the addresses of the
            // first.
            let (arena, own, shared) = (Arc::clone(&arena), addresses[(thread + 1) % THREADS].clone(), addresses[0].clone());
            thread::spawn(move || own.into_iter().chain(shared).filter(|address| arena.free(*address).unwrap()).count())
        })
        .collect();
    let freed: usize = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
    assert_eq!(freed, THREADS * EACH);
    assert!(backend.mapped().is_empty());
    assert_eq!(arena.stats().mapped_bytes, 0);
    assert_eq!(arena.stats().used_bytes, arena.total_bytes());
}

#[test]
fn closing_beside_busy_threads_leaves_nothing_mapped() {
    for _ in 0..50 {
        let (arena, backend) = new_arena(4096, 1 << 40);
        let stop = Arc::new(AtomicBool::new(false));
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let (arena, stop) = (Arc::clone(&arena), Arc::clone(&stop));
                thread::spawn(move || {
                    while !stop.load(SeqCst) {
                        match arena.malloc(1) {
                            Ok(address) if address % 8192 == 0 => {
                                assert!(arena.free(address).is_ok())
                            }
                            Ok(_) => {}
                            Err(error) => return assert_eq!(error.code, "ERR_ARENA_CLOSED"),
                        }
                    }
                })
            })
            .collect();
        let closed = (0..100).any(|_| arena.close().is_ok());
        stop.store(true, SeqCst);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        assert_eq!(arena.close().unwrap(), !closed);
        assert!(backend.mapped().is_empty() && backend.released());
    }
}

#[test]
fn host_memory_is_reserved_mapped_written_and_given_back() {
    let arena = Arc::new(Arena::with_backend(Box::new(HostBackend::new()), 1 << 44).unwrap());
    assert_eq!((arena.total_bytes(), arena.base() % arena.granularity()), (1 << 44, 0));
    let address = arena.malloc(3 << 20).unwrap();
    // SAFETY: the arena has just mapped it for us.
    let bytes = unsafe { std::slice::from_raw_parts_mut(address as *mut u8, 3 << 20) };
    assert!(bytes.iter().all(|byte| *byte == 0));
    bytes.fill(0xa5);
    assert!(arena.free(address).unwrap());
    let again = arena.malloc(1).unwrap();
    // SAFETY: as above.
    assert_eq!(unsafe { *(again as *const u8) }, 0);
    assert!(arena.close().unwrap());
}

#[test]
fn what_a_close_took_out_counts_no_more_though_its_memory_is_still_there() {
    let (arena, backend) = new_arena(4096, 4 * 4096);
    let address = arena.malloc(1).unwrap();
    let mut closing = Arena::begin_close(&*arena).unwrap().unwrap();
    closing.take_out();
    assert_eq!(arena.stats(), Stats { used_bytes: 4096, mapped_bytes: 0, live_allocation_count: 0, pins: 0, closed: true });
    assert_eq!(backend.mapped(), [(address, 4096)]);
    assert!(closing.finish().is_empty());
    assert!(backend.mapped().is_empty() && backend.released());
}

#[test]
fn holes_are_empty_once_nothing_is_on_its_way_or_held() {
    let arena = Arc::new(Arena::external(BASE, 8 * 4096, 4096, MemoryKind::Host).unwrap());
    let allocated = || {
        let claim = arena.claim(1).unwrap();
        let address = claim.address;
        arena.commit(claim, 0);
        address
    };
    let [first, freed, last] = [(); 3].map(|()| allocated());
    let now = || {
        let living = arena.living();
        (living.allocations.iter().map(|allocation| allocation.address).collect::<Vec<_>>(), living.holes)
    };
    assert_eq!(now(), (vec![first, freed, last], Holes::Empty));
    let taken = Arena::take(&*arena, freed).unwrap().unwrap();
    assert_eq!(now(), (vec![first, last], Holes::Moving));
    taken.into_allocation().unwrap();
    assert_eq!(now(), (vec![first, last], Holes::Empty));
    let claim = arena.claim(1).unwrap();
    let later = allocated();
    assert_eq!(now(), (vec![first, last, later], Holes::Moving));
    arena.abandon(claim);
    assert_eq!(now(), (vec![first, last, later], Holes::Empty));
    let pin = arena.pin(last, 1).unwrap();
    assert!(arena.free_when_unheld(last).unwrap());
    assert_eq!(now(), (vec![first, later], Holes::Held));
    drop(pin);
    assert_eq!(now(), (vec![first, later], Holes::Empty));
}
