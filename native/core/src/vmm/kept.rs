//! Pages that outlive the load that filled them, for the next load: fresh ones cost more than
//! reading a file does.
//!
//! One store serves the process, all its threads. Pages are moved into it and out of it by
//! `mremap`, so no two owners ever reach the same ones, and whoever still had the old addresses
//! finds nothing there. A native thread gives back what nobody took in time; it keeps no process
//! alive.

use std::collections::VecDeque;
use std::ptr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::host::{HUGE_PAGE_BYTES, keep_from_forks, map_inaccessible, unmap};

/// What a store may hold, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepLimits {
    pub max_bytes: usize,
    pub idle: Duration,
}

/// Whole huge pages in one mapping.
struct Extent {
    address: usize,
    bytes: usize,
    expires: Instant,
}

/// Neighbouring bytes `(address, bytes)` in one mapping.
pub type Piece = (usize, usize);

pub struct PageStore {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// In the order in which they came.
    extents: VecDeque<Extent>,
    bytes: usize,
    /// To be unmapped by the thread, which has no other way to be told.
    given_up: Vec<Piece>,
    /// Whether the thread runs.
    served: bool,
}

/// The process's own.
pub static PAGES: PageStore = PageStore::new();

impl PageStore {
    pub const fn new() -> Self {
        let state = State { extents: VecDeque::new(), bytes: 0, given_up: Vec::new(), served: false };
        PageStore { state: Mutex::new(state), changed: Condvar::new() }
    }

    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Moves pages to the start of `[address, address + bytes)`, reserved and without memory, as
    /// many as there are. The pieces that are filled, in order.
    pub fn take(&self, address: usize, bytes: usize) -> Vec<Piece> {
        let end = address + bytes - bytes % HUGE_PAGE_BYTES;
        let mut pieces = Vec::new();
        let mut at = address;
        while at < end {
            let newest = self.lock().pop_newest(end - at);
            let Some((from, length)) = newest else { break };
            // SAFETY: the source is ours alone since it was popped; the target is the caller's, and
            // without memory.
            let moved =
                unsafe { libc::mremap(from as *mut _, length, length, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, at as *mut libc::c_void) };
            if moved == libc::MAP_FAILED {
                // Too many mappings. Where that left a hole it is filled, before others map into
                // it.
                let _ = map_inaccessible(at as *mut _, length, libc::MAP_FIXED_NOREPLACE);
                keep_from_forks(at, length);
                let _ = unmap(from, length);
                break;
            }
            pieces.push((at, length));
            at += length;
        }
        pieces
    }

    /// Moves the pages of `[address, address + bytes)`, which lie in one mapping and nobody uses,
    /// into the store; the addresses stay mapped, without memory. What is too much for the limits
    /// goes, the oldest first, on the thread. Where the kernel cannot do that (before Linux 5.7),
    /// nothing happens.
    pub fn put(&'static self, address: usize, bytes: usize, limits: KeepLimits) {
        let Some(kept_at) = move_out(address, bytes) else { return };
        let mut state = self.lock();
        if !self.serve(&mut state) {
            // What is kept would never go.
            let _ = unmap(kept_at, bytes);
            return;
        }
        state.extents.push_back(Extent { address: kept_at, bytes, expires: Instant::now() + limits.idle });
        state.bytes += bytes;
        while state.bytes > limits.max_bytes {
            let over = state.bytes - limits.max_bytes;
            let Some(piece) = state.pop_oldest(over) else { break };
            state.given_up.push(piece);
        }
        self.changed.notify_all();
    }

    /// Gives at least so many bytes back, the oldest first, or all there are; how many. Blocks.
    pub fn release(&self, bytes: usize) -> usize {
        let mut released = 0;
        while released < bytes {
            let oldest = self.lock().pop_oldest(bytes - released);
            let Some((address, length)) = oldest else { break };
            let _ = unmap(address, length);
            released += length;
        }
        released
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the thread where it does not run; it looks at the state once that is unlocked. False
    /// where the system refuses one.
    fn serve(&'static self, state: &mut State) -> bool {
        if !state.served {
            state.served = std::thread::Builder::new().name("mx-kept".to_owned()).spawn(|| self.give_back_in_time()).is_ok();
        }
        state.served
    }

    /// Body of the thread, which ends when nothing is kept.
    fn give_back_in_time(&self) {
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            state.give_up_expired(now);
            let given_up = std::mem::take(&mut state.given_up);
            if !given_up.is_empty() {
                drop(state);
                for (address, bytes) in given_up {
                    let _ = unmap(address, bytes);
                }
                state = self.lock();
                self.changed.notify_all();
                continue;
            }
            let Some(next) = state.extents.iter().map(|extent| extent.expires).min() else {
                state.served = false;
                return;
            };
            let wait = next.saturating_duration_since(now);
            state = self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Default for PageStore {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    /// At most so many bytes of what came last, whose pages are the likeliest to be in memory.
    fn pop_newest(&mut self, max_bytes: usize) -> Option<Piece> {
        let extent = self.extents.back_mut()?;
        let bytes = extent.bytes.min(max_bytes);
        extent.bytes -= bytes;
        let piece = (extent.address + extent.bytes, bytes);
        if extent.bytes == 0 {
            self.extents.pop_back();
        }
        self.bytes -= bytes;
        Some(piece)
    }

    /// Of what came first, so many bytes in whole huge pages, or less.
    fn pop_oldest(&mut self, wanted_bytes: usize) -> Option<Piece> {
        let extent = self.extents.front_mut()?;
        let bytes = wanted_bytes.min(extent.bytes).next_multiple_of(HUGE_PAGE_BYTES);
        extent.bytes -= bytes;
        let piece = (extent.address + extent.bytes, bytes);
        if extent.bytes == 0 {
            self.extents.pop_front();
        }
        self.bytes -= bytes;
        Some(piece)
    }

    fn give_up_expired(&mut self, now: Instant) {
        let State { extents, bytes, given_up, .. } = self;
        extents.retain(|extent| {
            let stays = extent.expires > now;
            if !stays {
                *bytes -= extent.bytes;
                given_up.push((extent.address, extent.bytes));
            }
            stays
        });
    }
}

/// Moves pages to addresses of their own, aligned so that huge pages stay whole. None where that is
/// refused: then they are where they were.
fn move_out(address: usize, bytes: usize) -> Option<usize> {
    let mapped_bytes = bytes + HUGE_PAGE_BYTES;
    let start = map_inaccessible(ptr::null_mut(), mapped_bytes, 0).ok()?;
    let target = start.next_multiple_of(HUGE_PAGE_BYTES);
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
    // SAFETY: the source is the caller's to give up; the target lies in what was just mapped for
    // it.
    let moved = unsafe { libc::mremap(address as *mut _, bytes, bytes, flags, target as *mut libc::c_void) };
    if moved == libc::MAP_FAILED {
        let _ = unmap(start, mapped_bytes);
        return None;
    }
    for (from, to) in [(start, target), (target + bytes, start + mapped_bytes)] {
        if from < to {
            let _ = unmap(from, to - from);
        }
    }
    // Whoever registered the memory may have changed that.
    keep_from_forks(target, bytes);
    Some(target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vmm::{HostBackend, KeepingBackend, VmmBackend};

    const HUGE: usize = HUGE_PAGE_BYTES;
    const HOUR: Duration = Duration::from_secs(3600);

    fn store() -> &'static PageStore {
        Box::leak(Box::new(PageStore::new()))
    }

    fn limits(max_bytes: usize) -> KeepLimits {
        KeepLimits { max_bytes, idle: HOUR }
    }

    /// An allocation of this many bytes over `store`, with its backend and base.
    fn allocated(store: &'static PageStore, limits: KeepLimits, bytes: usize) -> (KeepingBackend, usize) {
        let backend = KeepingBackend::new(store, limits);
        let total = bytes.next_multiple_of(HUGE);
        let base = backend.reserve(total).unwrap();
        backend.allocate_for(base, total, bytes).unwrap();
        (backend, base)
    }

    fn given_back((backend, base): (KeepingBackend, usize), bytes: usize) {
        let total = bytes.next_multiple_of(HUGE);
        backend.deallocate(base, total, 0).unwrap();
        backend.release_reserve(base, total).unwrap();
    }

    fn fill(address: usize, bytes: usize, value: u8) {
        // SAFETY: an allocation of the test's own.
        unsafe { std::ptr::write_bytes(address as *mut u8, value, bytes) };
    }

    fn byte(address: usize) -> u8 {
        // SAFETY: as above.
        unsafe { *(address as *const u8) }
    }

    #[test]
    fn whole_huge_pages_go_to_the_next_allocation() {
        let store = store();
        let bytes = 3 * HUGE + 5000;
        let first = allocated(store, limits(usize::MAX), bytes);
        fill(first.1, bytes, 7);
        first.0.keep();
        given_back(first, bytes);
        assert_eq!(store.bytes(), 3 * HUGE);

        let (backend, base) = allocated(store, limits(usize::MAX), 2 * HUGE + 1);
        assert_eq!((store.bytes(), backend.taken_bytes()), (HUGE, 2 * HUGE));
        assert_eq!([byte(base), byte(base + 2 * HUGE - 1), byte(base + 2 * HUGE)], [7, 7, 0]);
        // More than is kept: the rest is fresh.
        let second = allocated(store, limits(usize::MAX), 4 * HUGE);
        assert_eq!((store.bytes(), second.0.taken_bytes()), (0, HUGE));
        assert_eq!([byte(second.1), byte(second.1 + HUGE), byte(second.1 + 4 * HUGE - 1)], [7, 0, 0]);
        // The two share nothing.
        fill(second.1, 4 * HUGE, 9);
        assert_eq!(byte(base), 7);
        second.0.keep();
        given_back(second, 4 * HUGE);
        assert_eq!(store.bytes(), 4 * HUGE);
        given_back((backend, base), 2 * HUGE + 1);
        assert_eq!(store.bytes(), 4 * HUGE);
        assert_eq!(store.release(usize::MAX), 4 * HUGE);
    }

    #[test]
    fn what_lost_some_of_its_pages_is_not_kept() {
        let store = store();
        let (backend, base) = allocated(store, limits(usize::MAX), 2 * HUGE);
        fill(base, 2 * HUGE, 7);
        backend.keep();
        backend.drop_pages(base + HUGE, 4096);
        given_back((backend, base), 2 * HUGE);
        assert_eq!(store.bytes(), 0);
    }

    #[test]
    fn the_oldest_go_where_it_is_too_much() {
        let store = store();
        for value in 1..=3 {
            let kept = allocated(store, limits(0), 2 * HUGE);
            fill(kept.1, 2 * HUGE, value);
            let keeping = KeepLimits { max_bytes: 3 * HUGE + 1, idle: HOUR };
            store.put(kept.1, 2 * HUGE, keeping);
            given_back(kept, 2 * HUGE);
        }
        assert_eq!(store.bytes(), 2 * HUGE);
        let (backend, base) = allocated(store, limits(0), 2 * HUGE);
        assert_eq!([byte(base), byte(base + HUGE)], [3, 3]);
        given_back((backend, base), 2 * HUGE);
        // One that is too much by itself is kept in part.
        let large = allocated(store, limits(2 * HUGE), 4 * HUGE);
        fill(large.1, 4 * HUGE, 5);
        large.0.keep();
        given_back(large, 4 * HUGE);
        assert_eq!(store.bytes(), 2 * HUGE);
        assert_eq!((store.release(1), store.bytes()), (HUGE, HUGE));
        assert_eq!((store.release(usize::MAX), store.bytes()), (HUGE, 0));
    }

    #[test]
    fn what_nobody_takes_in_time_is_given_back() {
        let store = store();
        let host = HostBackend::new();
        let base = host.reserve(2 * HUGE).unwrap();
        host.allocate(base, 2 * HUGE).unwrap();
        store.put(base, HUGE, limits(usize::MAX));
        store.put(base + HUGE, HUGE, KeepLimits { max_bytes: usize::MAX, idle: Duration::ZERO });
        let mut state = store.lock();
        while state.bytes > HUGE {
            state = store.changed.wait(state).unwrap();
        }
        assert!(state.served);
        drop(state);
        assert_eq!(store.release(usize::MAX), HUGE);
        host.release_reserve(base, 2 * HUGE).unwrap();
    }

    #[test]
    fn what_the_kernel_does_not_move_stays_where_it_is() {
        let store = store();
        let host = HostBackend::new();
        let base = host.reserve(HUGE).unwrap();
        host.release_reserve(base, HUGE).unwrap();
        // Nothing is mapped there.
        store.put(base, HUGE, limits(usize::MAX));
        assert_eq!(store.bytes(), 0);
    }
}
