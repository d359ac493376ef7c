//! One reserved range of addresses, filled by bump allocation: addresses ascend and never repeat,
//! so a range registered with a network card or a storage library stays valid however much is
//! freed.
//!
//! One lock guards records and counters. It is short, and never held during a call of the backend.

#[cfg(not(loom))]
mod active;
mod giving_back;
mod in_flight;
mod living;
mod pin;
mod records;
mod refusal;
mod view;

#[cfg(all(test, not(loom)))]
mod active_tests;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod model_tests;
#[cfg(all(test, not(loom)))]
mod tests;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

#[cfg(not(loom))]
pub use active::{Activation, ActiveArena};
pub use giving_back::{Closing, RELEASES, Taken};
pub use in_flight::{GIVING_BACK, Underway};
pub use living::{Holes, Living};
pub use pin::Pin;
pub use records::Allocation;
pub use view::View;

use crate::cuda::CudaDevice;
use crate::error::{Error, Result};
use crate::sync::{Mutex, MutexGuard};
use crate::vmm::{MemoryKind, VmmBackend};
use giving_back::{Remains, drop_without_blocking};
use records::{Records, Removal};

/// How long an allocation that finds no memory waits for memory on its way back. Unmapping a
/// terabyte takes about so long.
const GIVING_BACK_PATIENCE: Duration = Duration::from_secs(10);

/// Safe from any thread. Dropped unclosed, an arena over a native backend gives everything back,
/// without a word about failures; one over a backend that JavaScript drives only forgets its
/// records.
pub struct Arena {
    state: Mutex<State>,
    backend: Option<Box<dyn VmmBackend>>,
    base: usize,
    total_bytes: usize,
    granularity: usize,
    memory: MemoryKind,
}

#[derive(Default)]
struct State {
    records: Records,
    /// The bump pointer: bytes handed out since the beginning.
    used_bytes: usize,
    /// Claims that await their memory. `close` is refused meanwhile.
    claims: usize,
    /// What gives memory back just now, without the lock. The last of a closed arena gives the
    /// address space back, too.
    giving_back: usize,
    closed: bool,
}

/// Address space that was claimed and awaits its memory: end it with `commit` or `abandon`.
#[must_use]
#[derive(Debug)]
pub struct Claim {
    pub address: usize,
    /// The size asked for, rounded up to the granularity.
    pub bytes: usize,
}

/// Gives a claim up unless it was committed, also when the backend panics.
struct Pending<'arena> {
    arena: &'arena Arena,
    claim: Option<Claim>,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            self.arena.abandon(claim);
        }
    }
}

/// Counters at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// The bump pointer: everything ever handed out, holes included.
    pub used_bytes: usize,
    /// Bytes of the allocations that have memory: those alive, and those freed that pins or views
    /// still hold.
    pub mapped_bytes: usize,
    pub live_allocation_count: usize,
    pub pins: usize,
    pub closed: bool,
}

impl Arena {
    /// Reserves `total_bytes`, rounded up to the backend's granularity.
    pub fn with_backend(backend: Box<dyn VmmBackend>, total_bytes: usize) -> Result<Self> {
        let granularity = backend.allocation_granularity();
        let total_bytes = refusal::reserve_size(total_bytes, granularity)?;
        let base = backend.reserve(total_bytes)?;
        let memory = backend.memory();
        Ok(Self::new(Some(backend), base, total_bytes, granularity, memory))
    }

    /// Over `[base, base + total_bytes)` of a backend that the caller drives by `claim`, `commit`,
    /// `take` and so on.
    pub fn external(base: usize, total_bytes: usize, granularity: usize, memory: MemoryKind) -> Result<Self> {
        let rounded_bytes = refusal::reserve_size(total_bytes, granularity)?;
        if base.checked_add(rounded_bytes).is_none() {
            let message =
                format!("{rounded_bytes} bytes at {base:#x} go past the end of the address space: the backend's reserve is at fault");
            return Err(Error::new("ERR_ARENA_SIZE", message).with("length", rounded_bytes).with("address", format!("{base:#x}")));
        }
        Ok(Self::new(None, base, rounded_bytes, granularity, memory))
    }

    fn new(backend: Option<Box<dyn VmmBackend>>, base: usize, total_bytes: usize, granularity: usize, memory: MemoryKind) -> Self {
        Arena { state: Mutex::new(State::default()), backend, base, total_bytes, granularity, memory }
    }

    pub fn base(&self) -> usize {
        self.base
    }

    /// What was reserved: a multiple of the granularity.
    pub fn total_bytes(&self) -> usize {
        self.total_bytes
    }

    pub fn granularity(&self) -> usize {
        self.granularity
    }

    /// Whether this process can touch the bytes.
    pub fn host_memory(&self) -> bool {
        self.memory == MemoryKind::Host
    }

    pub fn stats(&self) -> Stats {
        let State { records, used_bytes, closed, .. } = &*self.lock();
        Stats {
            used_bytes: *used_bytes,
            mapped_bytes: records.bytes(),
            live_allocation_count: records.count(),
            pins: records.pins(),
            closed: *closed,
        }
    }

    /// Address space and memory from the native backend. ERR_ARENA_SIZE, _EXHAUSTED, _CLOSED, or
    /// the backend's error: then only that piece of address space is lost.
    pub fn malloc(&self, bytes: usize) -> Result<usize> {
        let backend = self.native_backend()?;
        let claim = self.claim(bytes)?;
        let (address, claimed_bytes) = (claim.address, claim.bytes);
        let mut pending = Pending { arena: self, claim: Some(claim) };
        // What others are about to give back may be what is missing.
        let handle = GIVING_BACK.allocate(GIVING_BACK_PATIENCE, || backend.allocate_for(address, claimed_bytes, bytes))?;
        if let Some(claim) = pending.claim.take() {
            self.commit(claim, handle);
        }
        Ok(address)
    }

    /// Gives the allocation that starts at `address` back. False, and nothing done, where none does
    /// or the arena is closed. The record is gone also when the backend fails; ERR_ARENA_BUSY while
    /// the allocation is pinned changes nothing.
    pub fn free(&self, address: usize) -> Result<bool> {
        match Self::take(self, address)? {
            Some(taken) => taken.give_back().map(|()| true),
            None => Ok(false),
        }
    }

    /// `free` for a caller that knows nothing of pins and views: where there are any, the memory
    /// goes with the last of them, and is alive to nobody else from now on.
    pub fn free_when_unheld(&self, address: usize) -> Result<bool> {
        let mut state = self.lock();
        if state.closed {
            return Ok(false);
        }
        match state.records.free(address) {
            Removal::Removed(allocation) => {
                state.giving_back += 1;
                drop(state);
                Taken::new(self, allocation, false).give_back().map(|()| true)
            }
            Removal::Held(_) | Removal::Pinned(_) => Ok(true),
            Removal::Unknown => Ok(false),
        }
    }

    /// Address space for `bytes`. Until the claim has ended `close` is ERR_ARENA_BUSY.
    #[inline]
    pub fn claim(&self, bytes: usize) -> Result<Claim> {
        if bytes == 0 {
            return Err(refusal::no_size());
        }
        let rounded = bytes.checked_next_multiple_of(self.granularity);
        let mut state = self.lock();
        if state.closed {
            drop(state);
            return Err(self.closed());
        }
        let used_bytes = state.used_bytes;
        let end = rounded.and_then(|rounded| used_bytes.checked_add(rounded)).filter(|end| *end <= self.total_bytes);
        let Some(end) = end else {
            drop(state);
            return Err(self.exhausted(bytes, used_bytes));
        };
        state.used_bytes = end;
        state.claims += 1;
        Ok(Claim { address: self.base + used_bytes, bytes: end - used_bytes })
    }

    /// The memory of `claim` is there: it becomes a live allocation.
    #[inline]
    pub fn commit(&self, claim: Claim, handle: u64) {
        let mut state = self.lock();
        state.records.insert(Allocation { address: claim.address, bytes: claim.bytes, handle });
        state.claims -= 1;
    }

    /// The memory of `claim` could not be had; its address space is lost.
    pub fn abandon(&self, _claim: Claim) {
        self.lock().claims -= 1;
    }

    /// Takes the allocation that starts at `address` out of the records: it is no longer alive, and
    /// this caller alone gives its memory back. None where there is none, or the arena is closed.
    /// ERR_ARENA_BUSY while it is pinned.
    #[inline]
    pub fn take<A: Deref<Target = Arena>>(arena: A, address: usize) -> Result<Option<Taken<A>>> {
        let mut state = arena.lock();
        if state.closed {
            return Ok(None);
        }
        let (allocation, recorded) = match state.records.take(address) {
            Removal::Removed(allocation) => (allocation, false),
            Removal::Held(allocation) => (allocation, true),
            Removal::Pinned(allocation) => {
                drop(state);
                return Err(refusal::busy("free", allocation));
            }
            Removal::Unknown => return Ok(None),
        };
        state.giving_back += 1;
        drop(state);
        Ok(Some(Taken::new(arena, allocation, recorded)))
    }

    /// Holds the allocation around `[address, address + length)`. ERR_ARENA_ADDRESS where that is
    /// not inside one live allocation.
    pub fn pin(self: &Arc<Self>, address: usize, length: usize) -> Result<Pin> {
        let allocation = self.hold(address, length, |records| records.pin(address, length))?;
        Ok(Pin::new(Arc::clone(self), allocation.address))
    }

    /// `hold` where the arena is open. ERR_ARENA_ADDRESS where that finds no live allocation around
    /// `[address, address + length)`, ERR_ARENA_CLOSED.
    fn hold(&self, address: usize, length: usize, hold: impl Fn(&mut Records) -> Option<Allocation>) -> Result<Allocation> {
        let mut state = self.lock();
        if state.closed {
            drop(state);
            return Err(self.closed());
        }
        hold(&mut state.records).ok_or_else(|| refusal::no_allocation(address, length))
    }

    /// Ends a hold. `let_go` gives the allocation that was freed before and that nobody holds any
    /// more: its memory goes now, and there is nobody to tell of a failure.
    fn let_go(self: &Arc<Self>, let_go: impl FnOnce(&mut Records) -> Option<Allocation>) {
        let mut state = self.lock();
        let Some(allocation) = let_go(&mut state.records) else { return };
        state.giving_back += 1;
        drop(state);
        drop_without_blocking(self.memory, allocation.bytes, Taken::new(Arc::clone(self), allocation, false));
    }

    /// Fails where the mapped range `[address, address + bytes)`, which may span allocations,
    /// cannot be given to a network card as one region. Any range of the host can. The backend's
    /// error; ERR_INTERNAL without a native backend.
    pub fn prove_one_region(&self, address: usize, bytes: usize) -> Result<()> {
        self.native_backend()?.prove_one_region(address, bytes)
    }

    /// A copy of `length` bytes of device memory at `address`, pinned meanwhile. Blocks.
    /// ERR_ARENA_ADDRESS, ERR_ARENA_CLOSED, the backend's.
    pub fn copy_to_host(self: &Arc<Self>, address: usize, length: usize) -> Result<Vec<u8>> {
        let _pin = self.pin(address, length)?;
        let mut bytes = crate::memory::zeroed(length, "a copy of device memory")?;
        self.native_backend()?.copy_to_host(address, &mut bytes)?;
        Ok(bytes)
    }

    /// The device whose memory it is, where a native backend of CUDA's gave it.
    pub fn cuda_device(&self) -> Option<&CudaDevice> {
        self.backend.as_ref().and_then(|backend| backend.cuda_device())
    }

    /// The live allocation around `[address, address + length)`.
    pub fn containing(&self, address: usize, length: usize) -> Option<Allocation> {
        self.lock().records.containing(address, length)
    }

    /// Closes an arena over a native backend. False when it was closed before. Raises the first
    /// error; the arena is closed all the same. ERR_ARENA_BUSY while anything is pinned or
    /// allocated: the arena stays open.
    pub fn close(&self) -> Result<bool> {
        self.native_backend()?;
        let Some(closing) = Self::begin_close(self)? else {
            return Ok(false);
        };
        match closing.finish().into_iter().next() {
            Some(first) => Err(first),
            None => Ok(true),
        }
    }

    /// The first half of a close: nothing is being allocated, and nothing begins. None when it was
    /// closed before; ERR_ARENA_BUSY as `close`.
    pub fn begin_close<A: Deref<Target = Arena>>(arena: A) -> Result<Option<Closing<A>>> {
        let mut state = arena.lock();
        if state.closed {
            return Ok(None);
        }
        if let Some(allocation) = state.records.any_pinned() {
            drop(state);
            return Err(refusal::busy("close", allocation));
        }
        if state.claims > 0 {
            drop(state);
            return Err(arena.allocating());
        }
        state.closed = true;
        state.giving_back += 1;
        drop(state);
        Ok(Some(Closing::new(arena)))
    }

    fn deallocate(&self, Allocation { address, bytes, handle }: Allocation) -> Result<()> {
        self.native_backend()?.deallocate(address, bytes, handle)
    }

    /// One that gave memory back has done so. After the last of a closed arena the address space
    /// goes; the error of that.
    fn given_back(&self) -> Result<()> {
        let mut state = self.lock();
        state.giving_back -= 1;
        let last = state.closed && state.giving_back == 0 && state.records.count() == 0;
        drop(state);
        match &self.backend {
            Some(backend) if last => backend.release_reserve(self.base, self.total_bytes),
            _ => Ok(()),
        }
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics between two states, so a poisoned lock guards sound data.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn native_backend(&self) -> Result<&dyn VmmBackend> {
        let missing = || Error::new("ERR_INTERNAL", "this arena has no native backend: its owner drives the backend itself");
        self.backend.as_deref().ok_or_else(missing)
    }
}

impl Drop for Arena {
    /// Nobody can hold or use anything of it any more, so that nothing is waited for.
    fn drop(&mut self) {
        let mut state = self.lock();
        let (closed, bytes, allocations) = (state.closed, state.records.bytes(), state.records.drain());
        drop(state);
        if let Some(backend) = self.backend.take().filter(|_| !closed) {
            let remains = Remains { backend, allocations, base: self.base, total_bytes: self.total_bytes };
            drop_without_blocking(self.memory, bytes, remains);
        }
    }
}
