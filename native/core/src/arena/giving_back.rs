//! Memory on its way out. Whoever drops one of these half-way has the rest done: no memory waits
//! for a call that never comes.

use std::ops::Deref;

use super::in_flight::GIVING_BACK;
use super::{Allocation, Arena};
use crate::error::{Error, Result};
use crate::pool::Pool;
use crate::vmm::{MemoryKind, VmmBackend};

/// Threads that give memory back. Not those of allocations, which may wait for them.
pub static RELEASES: Pool = Pool::new("mx-release", 8);

/// More memory of the host than this takes some ten milliseconds a gigabyte to give back.
const QUICK_BYTES: usize = 64 << 20;

/// True where giving so much memory back takes time that the caller may not have. A device's always
/// may: its driver can wait for the device.
pub(super) fn takes_time(memory: MemoryKind, bytes: usize) -> bool {
    bytes > 0 && (memory == MemoryKind::Device || bytes > QUICK_BYTES)
}

/// Drops what gives so much memory back: on a native thread where that takes time.
pub(super) fn drop_without_blocking(memory: MemoryKind, bytes: usize, owner: impl Send + 'static) {
    if takes_time(memory, bytes) {
        let underway = GIVING_BACK.begin();
        // A refused thread drops it here.
        let _ = RELEASES.run(move || {
            drop(owner);
            drop(underway);
        });
    }
}

/// An allocation that nobody can find any more, and whose memory this gives back. Where views of it
/// are left, the last of them does.
#[must_use]
pub struct Taken<A: Deref<Target = Arena>> {
    arena: A,
    allocation: Allocation,
    /// Still in the records, because of its views.
    recorded: bool,
    done: bool,
}

impl<A: Deref<Target = Arena>> Taken<A> {
    pub(super) fn new(arena: A, allocation: Allocation, recorded: bool) -> Self {
        Taken { arena, allocation, recorded, done: false }
    }

    pub fn allocation(&self) -> Allocation {
        self.allocation
    }

    /// True where giving it back takes time that a thread of JavaScript does not have.
    pub fn takes_time(&self) -> bool {
        takes_time(self.arena.memory, self.allocation.bytes)
    }

    /// Gives the memory back to the native backend. The backend's error.
    pub fn give_back(mut self) -> Result<()> {
        self.done = true;
        self.finish()
    }

    /// For an owner who drives the backend: the allocation is out of the records, and its memory
    /// the owner's business. None where views are left.
    pub fn into_allocation(mut self) -> Option<Allocation> {
        self.done = true;
        let out = self.settle();
        let _ = self.arena.given_back();
        out.then_some(self.allocation)
    }

    fn settle(&self) -> bool {
        !self.recorded || self.arena.lock().records.settle(self.allocation.address)
    }

    fn finish(&self) -> Result<()> {
        let outcome = if self.settle() { self.arena.deallocate(self.allocation) } else { Ok(()) };
        outcome.and(self.arena.given_back())
    }
}

impl<A: Deref<Target = Arena>> Drop for Taken<A> {
    fn drop(&mut self) {
        if !self.done {
            // There is nobody to tell.
            let _ = self.finish();
        }
    }
}

/// An arena that refuses everything, and whose memory this gives back. Allocations with views that
/// are left, and then the address space, go with the last of the views.
#[must_use]
pub struct Closing<A: Deref<Target = Arena>> {
    arena: A,
    /// Out of the records already.
    out: Option<Vec<Allocation>>,
    done: bool,
}

impl<A: Deref<Target = Arena>> Closing<A> {
    pub(super) fn new(arena: A) -> Self {
        Closing { arena, out: None, done: false }
    }

    /// Takes what nobody sees out of the records, so that it counts no more while it is given back.
    pub fn take_out(&mut self) {
        self.out = Some(self.drain());
    }

    /// As of a free, for all that was taken out.
    pub fn takes_time(&self) -> bool {
        takes_time(self.arena.memory, self.out.iter().flatten().map(|allocation| allocation.bytes).sum())
    }

    /// Gives every allocation back once, going on after errors, then the address space. All errors,
    /// in order.
    pub fn finish(mut self) -> Vec<Error> {
        self.done = true;
        self.give_back()
    }

    fn give_back(&mut self) -> Vec<Error> {
        let out = self.out.take().unwrap_or_else(|| self.drain());
        let mut errors: Vec<Error> = out.into_iter().filter_map(|allocation| self.arena.deallocate(allocation).err()).collect();
        errors.extend(self.arena.given_back().err());
        errors
    }

    /// For an owner who drives the backend: what is to be given back, in the order of addresses.
    pub fn into_allocations(mut self) -> Vec<Allocation> {
        self.done = true;
        let out = self.drain();
        let _ = self.arena.given_back();
        out
    }

    fn drain(&self) -> Vec<Allocation> {
        self.arena.lock().records.drain()
    }
}

impl<A: Deref<Target = Arena>> Drop for Closing<A> {
    fn drop(&mut self) {
        if !self.done {
            self.give_back();
        }
    }
}

/// What an arena left that was never closed: dropping this gives it back, without a word about
/// failures.
pub(super) struct Remains {
    pub backend: Box<dyn VmmBackend>,
    pub allocations: Vec<Allocation>,
    pub base: usize,
    pub total_bytes: usize,
}

impl Drop for Remains {
    fn drop(&mut self) {
        for Allocation { address, bytes, handle } in self.allocations.drain(..) {
            let _ = self.backend.deallocate(address, bytes, handle);
        }
        let _ = self.backend.release_reserve(self.base, self.total_bytes);
    }
}

impl Arena {
    /// Gives back the whole pages of `[address, address + bytes)` that none of `kept` touches;
    /// `kept` are `(address, bytes)` in the order of addresses. For memory that was freed, and that
    /// views are left of.
    pub fn drop_all_but(&self, address: usize, bytes: usize, kept: &[(usize, usize)]) {
        let Some(backend) = &self.backend else { return };
        let page = crate::sys::page_bytes();
        let mut from = address;
        for (to, next) in
            kept.iter().map(|(at, length)| (at - at % page, (at + length).next_multiple_of(page))).chain([(address + bytes, 0)])
        {
            if from < to {
                backend.drop_pages(from, to - from);
            }
            from = from.max(next);
        }
    }
}
