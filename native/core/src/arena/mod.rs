//! One reserved range of addresses, filled by bump allocation: addresses ascend and never repeat, so a range registered with a network
//! card or a storage library stays valid however much is freed.
//!
//! Every thread works on a stripe of its own (records, count of work in flight) under a lock that is short, mostly uncontended and never
//! held during a backend call; threads meet only at the bump pointer.

#[cfg(not(loom))]
mod active;
mod ledger;
mod pin;
mod sync;
mod view;

#[cfg(all(test, not(loom)))]
mod active_tests;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod model_tests;
#[cfg(all(test, not(loom)))]
mod tests;

use std::sync::Arc;

#[cfg(not(loom))]
pub use active::{Activation, ActiveArena};
pub use ledger::Allocation;
pub use pin::Pin;
pub use view::View;

use crate::cuda::CudaDevice;
use crate::error::{Error, Result};
use crate::vmm::{MemoryKind, VmmBackend};
use ledger::{Kept, Ledger, Remover};
use sync::{AtomicBool, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, Padded};

/// Safe from any thread. Dropped unclosed, an arena over a native backend gives everything back, without a word about failures; one over a
/// backend that JavaScript drives only forgets its records.
pub struct Arena {
    /// Bytes handed out since the beginning, alone in its cache lines: the one place where threads contend.
    used: Padded<AtomicUsize>,
    stripes: Box<[Padded<Stripe>]>,
    /// Views alive; see [`View`].
    views: AtomicUsize,
    /// Closed while there were views: the last of them gives the address space back.
    reserve_kept: AtomicBool,
    backend: Option<Box<dyn VmmBackend>>,
    base: usize,
    total_bytes: usize,
    granularity: usize,
    memory: MemoryKind,
}

#[derive(Default)]
struct Stripe {
    state: Mutex<StripeState>,
    /// Told when the last work in flight of a closed stripe has ended.
    idle: Condvar,
}

#[derive(Default)]
struct StripeState {
    ledger: Ledger,
    in_flight: usize,
    /// Equal in all stripes: changed under all locks at once.
    closed: bool,
    /// Where the bump pointer stood when this stripe saw it last. It only grows, so a guess that lags costs one more attempt.
    seen_used: usize,
}

/// Address space that was claimed and awaits its memory: end it with `commit` or `abandon`.
#[must_use]
#[derive(Debug)]
pub struct Claim {
    pub address: usize,
    /// The size asked for, rounded up to the granularity.
    pub bytes: usize,
    stripe: usize,
}

/// An allocation that was taken out and whose memory is to be given back: end it with `finish_take`.
#[must_use]
#[derive(Debug)]
pub struct Taken {
    pub allocation: Allocation,
    stripe: usize,
}

/// Counters at one moment; while other threads work, each is exact for itself only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// The bump pointer: everything ever handed out, holes included.
    pub used_bytes: usize,
    /// Bytes alive.
    pub mapped_bytes: usize,
    pub live_allocation_count: usize,
    pub pins: usize,
    pub closed: bool,
}

impl Arena {
    /// Reserves `total_bytes`, rounded up to the backend's granularity.
    pub fn with_backend(backend: Box<dyn VmmBackend>, total_bytes: usize) -> Result<Self> {
        let granularity = backend.allocation_granularity();
        let total_bytes = reserve_size(total_bytes, granularity)?;
        let base = backend.reserve(total_bytes)?;
        let memory = backend.memory();
        Ok(Self::new(Some(backend), base, total_bytes, granularity, memory))
    }

    /// Over `[base, base + total_bytes)` of a backend that the caller drives by `claim`, `commit`, `take` and so on.
    pub fn external(base: usize, total_bytes: usize, granularity: usize, memory: MemoryKind) -> Result<Self> {
        let rounded_bytes = reserve_size(total_bytes, granularity)?;
        if base.checked_add(rounded_bytes).is_none() {
            let message =
                format!("{rounded_bytes} bytes at {base:#x} go past the end of the address space: the backend's reserve is at fault");
            return Err(Error::new("ERR_ARENA_SIZE", message).with("length", rounded_bytes).with("address", format!("{base:#x}")));
        }
        Ok(Self::new(None, base, rounded_bytes, granularity, memory))
    }

    fn new(backend: Option<Box<dyn VmmBackend>>, base: usize, total_bytes: usize, granularity: usize, memory: MemoryKind) -> Self {
        let stripes = (0..sync::stripe_count()).map(|_| Padded(Stripe::default())).collect();
        Arena {
            used: Padded(AtomicUsize::new(0)),
            stripes,
            views: AtomicUsize::new(0),
            reserve_kept: AtomicBool::new(false),
            backend,
            base,
            total_bytes,
            granularity,
            memory,
        }
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
        let mut stats =
            Stats { used_bytes: self.used.0.load(Ordering::Relaxed), mapped_bytes: 0, live_allocation_count: 0, pins: 0, closed: false };
        for stripe in 0..self.stripes.len() {
            let state = self.lock(stripe);
            stats.mapped_bytes += state.ledger.live_bytes();
            stats.live_allocation_count += state.ledger.live_count();
            stats.pins += state.ledger.pins();
            stats.closed = state.closed;
        }
        stats
    }

    /// Address space and memory from the native backend. ERR_ARENA_SIZE, _EXHAUSTED, _CLOSED, or the backend's error: then only that piece
    /// of address space is lost.
    pub fn malloc(&self, bytes: usize) -> Result<usize> {
        let backend = self.native_backend()?;
        let claim = self.claim(bytes)?;
        match backend.allocate_for(claim.address, claim.bytes, bytes) {
            Ok(handle) => {
                let address = claim.address;
                self.commit(claim, handle);
                Ok(address)
            }
            Err(error) => {
                self.abandon(claim);
                Err(error)
            }
        }
    }

    /// Gives the allocation that starts at `address` back. False, and nothing done, where none does or the arena is closed. The record is
    /// gone also when the backend fails; ERR_ARENA_BUSY while the allocation is pinned changes nothing.
    pub fn free(&self, address: usize) -> Result<bool> {
        match self.take(address)? {
            Some(taken) => self.give_back(taken).map(|()| true),
            None => Ok(false),
        }
    }

    /// `free` for a caller that does not know what JavaScript does with the memory: ERR_ARENA_BUSY also where JavaScript ever had a view.
    pub fn free_as_stranger(&self, address: usize) -> Result<bool> {
        match self.take_for(address, Remover::Stranger)? {
            Some(taken) => self.give_back(taken).map(|()| true),
            None => Ok(false),
        }
    }

    /// Gives the memory of `taken` back to the native backend, and ends what `take` began.
    pub fn give_back(&self, taken: Taken) -> Result<()> {
        let Allocation { address, bytes, handle } = taken.allocation;
        let outcome = self.native_backend().and_then(|backend| self.give_back_to(backend, Allocation { address, bytes, handle }));
        self.finish_take(taken);
        outcome
    }

    /// Address space for `bytes`. `close` waits until the claim has ended.
    #[inline]
    pub fn claim(&self, bytes: usize) -> Result<Claim> {
        let rounded = match bytes.checked_add(self.granularity - 1) {
            Some(sum) if bytes > 0 => sum & !(self.granularity - 1),
            Some(_) => return Err(no_size()),
            None => return Err(self.exhausted(bytes, self.used.0.load(Ordering::Relaxed))),
        };
        let stripe = self.own_stripe();
        let mut state = self.lock(stripe);
        if state.closed {
            return Err(self.closed());
        }
        let mut used = state.seen_used;
        let end = loop {
            // A guess that lags is smaller than the truth: what does not fit behind it does not fit at all.
            let Some(end) = used.checked_add(rounded).filter(|end| *end <= self.total_bytes) else {
                drop(state);
                return Err(self.exhausted(bytes, used));
            };
            // Straight to the exchange, without a load before it: that would move the contended cache line twice.
            match self.used.0.compare_exchange(used, end, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break end,
                Err(now) => used = now,
            }
        };
        state.seen_used = end;
        state.in_flight += 1;
        Ok(Claim { address: self.base + used, bytes: rounded, stripe })
    }

    /// The memory of `claim` is there: it becomes a live allocation.
    #[inline]
    pub fn commit(&self, claim: Claim, handle: u64) {
        let mut state = self.lock(claim.stripe);
        state.ledger.insert(Allocation { address: claim.address, bytes: claim.bytes, handle });
        self.leave(state, claim.stripe);
    }

    /// The memory of `claim` could not be had; its address space is lost.
    pub fn abandon(&self, claim: Claim) {
        self.leave(self.lock(claim.stripe), claim.stripe);
    }

    /// Takes the allocation that starts at `address` out of the records: it is no longer alive, and this caller alone gives its memory back.
    /// None where there is none, or the arena is closed. ERR_ARENA_BUSY while it is pinned.
    #[inline]
    pub fn take(&self, address: usize) -> Result<Option<Taken>> {
        self.take_for(address, Remover::Owner)
    }

    #[inline]
    fn take_for(&self, address: usize, remover: Remover) -> Result<Option<Taken>> {
        for stripe in self.stripes_from_own() {
            let mut state = self.lock(stripe);
            if state.closed {
                return Ok(None);
            }
            match state.ledger.remove(address, remover) {
                Ok(allocation) => {
                    state.in_flight += 1;
                    return Ok(Some(Taken { allocation, stripe }));
                }
                Err(Kept::Pinned(allocation)) => {
                    drop(state);
                    return Err(busy("free", allocation));
                }
                Err(Kept::Viewed(allocation)) => {
                    drop(state);
                    return Err(viewed(allocation));
                }
                Err(Kept::Unknown) => {}
            }
        }
        Ok(None)
    }

    /// The memory of `taken` was given back, or could not be.
    #[inline]
    pub fn finish_take(&self, taken: Taken) {
        self.leave(self.lock(taken.stripe), taken.stripe);
    }

    /// Holds the allocation around `[address, address + length)`. ERR_ARENA_ADDRESS where that is not inside one live allocation.
    pub fn pin(self: &Arc<Self>, address: usize, length: usize) -> Result<Pin> {
        for stripe in self.stripes_from_own() {
            let mut state = self.lock(stripe);
            if state.closed {
                drop(state);
                return Err(self.closed());
            }
            if let Some(allocation) = state.ledger.pin(address, length) {
                return Ok(Pin::new(Arc::clone(self), stripe, allocation.address));
            }
        }
        Err(no_allocation(address, length))
    }

    /// As `pin`, for whoever takes the bytes away: ERR_ARENA_BUSY while anybody else holds the allocation.
    pub fn pin_alone(self: &Arc<Self>, address: usize, length: usize) -> Result<Pin> {
        let pin = self.pin(address, length)?;
        match pin.shared() {
            Some(allocation) => Err(busy("free", allocation)),
            None => Ok(pin),
        }
    }

    /// The live allocation around `[address, address + length)`, which only its owner frees from now on: see `free_as_stranger`.
    /// ERR_ARENA_ADDRESS, ERR_ARENA_CLOSED.
    fn mark_viewed(&self, address: usize, length: usize) -> Result<Allocation> {
        for stripe in self.stripes_from_own() {
            let mut state = self.lock(stripe);
            if state.closed {
                drop(state);
                return Err(self.closed());
            }
            if let Some(allocation) = state.ledger.mark_viewed(address, length) {
                return Ok(allocation);
            }
        }
        Err(no_allocation(address, length))
    }

    /// Fails where the mapped range `[address, address + bytes)`, which may span allocations, cannot be given to a network card as one region.
    /// Any range of the host can. The backend's error; ERR_INTERNAL without a native backend.
    pub fn prove_one_region(&self, address: usize, bytes: usize) -> Result<()> {
        self.native_backend()?.prove_one_region(address, bytes)
    }

    /// A copy of `length` bytes of device memory at `address`, pinned meanwhile. Blocks. ERR_ARENA_ADDRESS, ERR_ARENA_CLOSED, the backend's.
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

    fn unpin(&self, stripe: usize, start: usize) {
        self.lock(stripe).ledger.unpin(start);
    }

    /// What is alive, in the order of addresses.
    pub fn live(&self) -> Vec<Allocation> {
        let mut live: Vec<_> = (0..self.stripes.len()).flat_map(|stripe| self.lock(stripe).ledger.live().collect::<Vec<_>>()).collect();
        live.sort_unstable_by_key(|allocation| allocation.address);
        live
    }

    /// The live allocation around `[address, address + length)`.
    pub fn containing(&self, address: usize, length: usize) -> Option<Allocation> {
        self.stripes_from_own().find_map(|stripe| self.lock(stripe).ledger.containing(address, length))
    }

    /// Closes an arena over a native backend: `begin_close` and `finish_close`. False when it was closed before. Raises the first error; the
    /// arena is closed all the same. ERR_ARENA_BUSY while anything is pinned: the arena stays open.
    pub fn close(&self) -> Result<bool> {
        self.native_backend()?;
        let Some(live) = self.begin_close()? else {
            return Ok(false);
        };
        match self.finish_close(live).into_iter().next() {
            Some(first) => Err(first),
            None => Ok(true),
        }
    }

    /// The first half of a close: afterwards no work is in flight and none begins. Hands over what is live, in the order of addresses, for
    /// the caller to give back; None when it was closed before.
    pub fn begin_close(&self) -> Result<Option<Vec<Allocation>>> {
        {
            // All locks at once, in the one order there is: pins are looked at and the state is changed as one step.
            let mut states: Vec<_> = (0..self.stripes.len()).map(|stripe| self.lock(stripe)).collect();
            if states[0].closed {
                return Ok(None);
            }
            if let Some(allocation) = states.iter().find_map(|state| state.ledger.any_pinned()) {
                drop(states);
                return Err(busy("close", allocation));
            }
            for state in &mut states {
                state.closed = true;
            }
        }
        let mut live = Vec::new();
        for stripe in 0..self.stripes.len() {
            let mut state = self.lock(stripe);
            while state.in_flight > 0 {
                state = self.stripes[stripe].0.idle.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
            }
            live.extend(state.ledger.drain());
        }
        live.sort_unstable_by_key(|allocation| allocation.address);
        Ok(Some(live))
    }

    /// The second half over a native backend: gives every allocation back once, going on after errors, then the reserve. All errors, in order.
    pub fn finish_close(&self, live: Vec<Allocation>) -> Vec<Error> {
        let backend = match self.native_backend() {
            Ok(backend) => backend,
            Err(error) => return vec![error],
        };
        let given_back = live.into_iter().map(|allocation| self.give_back_to(backend, allocation));
        let mut errors: Vec<Error> = given_back.filter_map(Result::err).collect();
        self.reserve_kept.store(true, Ordering::SeqCst);
        if self.views.load(Ordering::SeqCst) == 0 {
            errors.extend(self.release_kept_reserve().err());
        }
        errors
    }

    fn give_back_to(&self, backend: &dyn VmmBackend, Allocation { address, bytes, handle }: Allocation) -> Result<()> {
        if self.views.load(Ordering::SeqCst) == 0 {
            backend.deallocate(address, bytes, handle)
        } else {
            backend.retire(address, bytes, handle)
        }
    }

    /// Gives the address space of a closed arena back, unless somebody did.
    fn release_kept_reserve(&self) -> Result<()> {
        if !self.reserve_kept.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        self.native_backend()?.release_reserve(self.base, self.total_bytes)
    }

    fn leave(&self, mut state: MutexGuard<'_, StripeState>, stripe: usize) {
        state.in_flight -= 1;
        if state.closed && state.in_flight == 0 {
            self.stripes[stripe].0.idle.notify_all();
        }
    }

    #[inline]
    fn lock(&self, stripe: usize) -> MutexGuard<'_, StripeState> {
        // Nothing panics between two states of a stripe, so a poisoned lock guards sound data.
        self.stripes[stripe].0.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    #[inline]
    fn own_stripe(&self) -> usize {
        sync::thread_number() & (self.stripes.len() - 1)
    }

    /// The own stripe first: what a thread frees it mostly allocated.
    #[inline]
    fn stripes_from_own(&self) -> impl Iterator<Item = usize> + use<> {
        let (own, mask) = (self.own_stripe(), self.stripes.len() - 1);
        (0..=mask).map(move |step| (own + step) & mask)
    }

    fn native_backend(&self) -> Result<&dyn VmmBackend> {
        let missing = || Error::new("ERR_INTERNAL", "this arena has no native backend: its owner drives the backend itself");
        self.backend.as_deref().ok_or_else(missing)
    }

    #[cold]
    fn closed(&self) -> Error {
        let message = format!("the arena at {:#x} is closed: make a new one", self.base);
        Error::new("ERR_ARENA_CLOSED", message).with("address", format!("{:#x}", self.base))
    }

    #[cold]
    fn exhausted(&self, bytes: usize, used_bytes: usize) -> Error {
        let total_bytes = self.total_bytes;
        let message = format!(
            "{bytes} bytes would go past the end of the arena: {used_bytes} of the {total_bytes} bytes reserved are handed out, and freed addresses are never reused; reserve more with totalBytes"
        );
        Error::new("ERR_ARENA_EXHAUSTED", message).with("length", bytes).with("usedBytes", used_bytes).with("totalBytes", total_bytes)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if self.backend.is_some() {
            let _ = self.close();
        }
    }
}

#[cold]
fn no_size() -> Error {
    Error::new("ERR_ARENA_SIZE", "an arena allocates at least one byte, 0 were asked for").with("length", 0usize)
}

#[cold]
fn busy(operation: &'static str, allocation: Allocation) -> Error {
    let Allocation { address, bytes, .. } = allocation;
    let message = format!(
        "{operation}: the {bytes} bytes at {address:#x} are still used by a transfer, or registered: await it, or the `settled` promise of its error, or close the registration, first"
    );
    Error::new("ERR_ARENA_BUSY", message).with("operation", operation).with("address", format!("{address:#x}")).with("length", bytes)
}

#[cold]
fn viewed(allocation: Allocation) -> Error {
    let Allocation { address, bytes, .. } = allocation;
    let message = format!("free: JavaScript has views of the {bytes} bytes at {address:#x}, and only the arena's own `free` can end them");
    Error::new("ERR_ARENA_BUSY", message).with("operation", "free").with("address", format!("{address:#x}")).with("length", bytes)
}

#[cold]
fn no_allocation(address: usize, length: usize) -> Error {
    let message = format!("the {length} bytes at {address:#x} do not lie within one live allocation of the arena");
    Error::new("ERR_ARENA_ADDRESS", message).with("address", format!("{address:#x}")).with("length", length)
}

fn reserve_size(total_bytes: usize, granularity: usize) -> Result<usize> {
    if !granularity.is_power_of_two() {
        let message = format!("the backend's granularity must be a positive power of two in bytes, it is {granularity}");
        return Err(Error::new("ERR_ARENA_GRANULARITY", message).with("granularity", granularity));
    }
    match total_bytes.checked_next_multiple_of(granularity) {
        Some(rounded) if total_bytes > 0 => Ok(rounded),
        _ => {
            let message = format!("an arena cannot reserve {total_bytes} bytes");
            Err(Error::new("ERR_ARENA_SIZE", message).with("length", total_bytes))
        }
    }
}
