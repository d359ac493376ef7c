//! Allocations on their way out. Whoever drops one of these half-way has the rest done: no memory waits for a call that never comes.

use std::ops::Deref;

use super::{Allocation, Arena};
use crate::error::{Error, Result};

/// An allocation that nobody can find any more, and whose memory this gives back. Where views of it are left, the last of them does.
#[must_use]
pub struct Taken<A: Deref<Target = Arena>> {
    arena: A,
    allocation: Allocation,
    stripe: usize,
    /// Still in the records, because of its views.
    recorded: bool,
    done: bool,
}

impl<A: Deref<Target = Arena>> Taken<A> {
    pub(super) fn new(arena: A, allocation: Allocation, stripe: usize, recorded: bool) -> Self {
        Taken { arena, allocation, stripe, recorded, done: false }
    }

    pub fn allocation(&self) -> Allocation {
        self.allocation
    }

    /// Gives the memory back to the native backend. The backend's error.
    pub fn give_back(mut self) -> Result<()> {
        self.done = true;
        self.finish()
    }

    /// For an owner who drives the backend: the allocation is out of the records, and its memory the owner's business. None where views are left.
    pub fn into_allocation(mut self) -> Option<Allocation> {
        self.done = true;
        let out = self.settle();
        self.arena.leave(self.stripe);
        out.then_some(self.allocation)
    }

    fn settle(&self) -> bool {
        !self.recorded || self.arena.lock(self.stripe).ledger.settle(self.allocation.address)
    }

    fn finish(&self) -> Result<()> {
        let outcome = if self.settle() { self.arena.deallocate(self.allocation) } else { Ok(()) };
        self.arena.leave(self.stripe);
        outcome
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

/// An arena that refuses everything, and whose memory this gives back. Allocations with views that are left, and then the address space, go with the
/// last of the views.
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
        self.out = Some(self.arena.drain());
    }

    /// Gives every allocation back once, going on after errors, then the address space. All errors, in order.
    pub fn finish(mut self) -> Vec<Error> {
        self.done = true;
        self.give_back()
    }

    fn give_back(&mut self) -> Vec<Error> {
        let out = self.out.take().unwrap_or_else(|| self.arena.drain());
        self.arena.finish_close(out)
    }

    /// For an owner who drives the backend: what is to be given back, in the order of addresses.
    pub fn into_allocations(mut self) -> Vec<Allocation> {
        self.done = true;
        self.arena.drain()
    }
}

impl<A: Deref<Target = Arena>> Drop for Closing<A> {
    fn drop(&mut self) {
        if !self.done {
            self.give_back();
        }
    }
}

impl Arena {
    /// Gives back the whole pages of `[address, address + bytes)` that none of `kept` touches; `kept` are `(address, bytes)` in the order of addresses.
    /// For memory that was freed, and that views are left of.
    pub fn drop_all_but(&self, address: usize, bytes: usize, kept: &[(usize, usize)]) {
        let Some(backend) = &self.backend else { return };
        let page = crate::io::sys::page_bytes();
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
