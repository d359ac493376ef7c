//! One reserved range of addresses, filled by bump allocation: addresses ascend and never repeat, so a range registered with a network
//! card or a storage library stays valid however much is freed.
//!
//! Every thread works on a stripe of its own (records, count of work in flight) under a lock that is short, mostly uncontended and never
//! held during a backend call; threads meet only at the bump pointer.

#[cfg(not(loom))]
mod active;
mod giving_back;
mod in_flight;
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

use std::ops::Deref;
use std::sync::Arc;

#[cfg(not(loom))]
pub use active::{Activation, ActiveArena};
pub use giving_back::{Closing, Taken};
pub use in_flight::{GIVING_BACK, Underway};
pub use ledger::Allocation;
pub use pin::Pin;
pub use view::View;

use crate::cuda::CudaDevice;
use crate::error::{Error, Result};
use crate::vmm::{MemoryKind, VmmBackend};
use ledger::{Ledger, Removal};
use sync::{AtomicUsize, Mutex, MutexGuard, Ordering, Padded};

/// Safe from any thread. Dropped unclosed, an arena over a native backend gives everything back, without a word about failures; one over a
/// backend that JavaScript drives only forgets its records.
pub struct Arena {
    /// Bytes handed out since the beginning, alone in its cache lines: the one place where threads contend.
    used: Padded<AtomicUsize>,
    stripes: Box<[Padded<Stripe>]>,
    /// From the beginning of a close on: what stands before the end of the address space. The close itself, and allocations that views are left of.
    before_release: AtomicUsize,
    backend: Option<Box<dyn VmmBackend>>,
    base: usize,
    total_bytes: usize,
    granularity: usize,
    memory: MemoryKind,
}

#[derive(Default)]
struct Stripe {
    state: Mutex<StripeState>,
}

#[derive(Default)]
struct StripeState {
    ledger: Ledger,
    in_flight: usize,
    /// Equal in all stripes: changed under all locks at once.
    closed: bool,
    /// A close was here, and counted in `before_release` what is left.
    drained: bool,
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

/// Counters at one moment; while other threads work, each is exact for itself only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// The bump pointer: everything ever handed out, holes included.
    pub used_bytes: usize,
    /// Bytes of the allocations that have memory: those alive, and those freed that pins or views still hold.
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
            before_release: AtomicUsize::new(0),
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
            stats.mapped_bytes += state.ledger.bytes();
            stats.live_allocation_count += state.ledger.count();
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
        let (address, claimed_bytes) = (claim.address, claim.bytes);
        let mut pending = Pending { arena: self, claim: Some(claim) };
        let allocate = || backend.allocate_for(address, claimed_bytes, bytes);
        let handle = match allocate() {
            // What another close is about to give back may be what is missing.
            Err(error) if error.code.ends_with("_OUT_OF_MEMORY") && GIVING_BACK.wait() => allocate()?,
            outcome => outcome?,
        };
        if let Some(claim) = pending.claim.take() {
            self.commit(claim, handle);
        }
        Ok(address)
    }

    /// Gives the allocation that starts at `address` back. False, and nothing done, where none does or the arena is closed. The record is
    /// gone also when the backend fails; ERR_ARENA_BUSY while the allocation is pinned changes nothing.
    pub fn free(&self, address: usize) -> Result<bool> {
        match Self::take(self, address)? {
            Some(taken) => taken.give_back().map(|()| true),
            None => Ok(false),
        }
    }

    /// `free` for a caller that knows nothing of pins and views: where there are any, the memory goes with the last of them, and is alive to nobody
    /// else from now on.
    pub fn free_when_unheld(&self, address: usize) -> Result<bool> {
        for stripe in self.stripes_from_own() {
            let mut state = self.lock(stripe);
            if state.closed {
                return Ok(false);
            }
            match state.ledger.free(address) {
                Removal::Removed(allocation) => {
                    state.in_flight += 1;
                    drop(state);
                    return Taken::new(self, allocation, stripe, false).give_back().map(|()| true);
                }
                Removal::Held(_) | Removal::Pinned(_) => return Ok(true),
                Removal::Unknown => {}
            }
        }
        Ok(false)
    }

    /// Address space for `bytes`. Until the claim has ended `close` is ERR_ARENA_BUSY.
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
        state.in_flight -= 1;
    }

    /// The memory of `claim` could not be had; its address space is lost.
    pub fn abandon(&self, claim: Claim) {
        self.leave(claim.stripe);
    }

    /// Takes the allocation that starts at `address` out of the records: it is no longer alive, and this caller alone gives its memory back.
    /// None where there is none, or the arena is closed. ERR_ARENA_BUSY while it is pinned.
    #[inline]
    pub fn take<A: Deref<Target = Arena>>(arena: A, address: usize) -> Result<Option<Taken<A>>> {
        for stripe in arena.stripes_from_own() {
            let mut state = arena.lock(stripe);
            if state.closed {
                return Ok(None);
            }
            let (allocation, recorded) = match state.ledger.take(address) {
                Removal::Removed(allocation) => (allocation, false),
                Removal::Held(allocation) => (allocation, true),
                Removal::Pinned(allocation) => {
                    drop(state);
                    return Err(busy("free", allocation));
                }
                Removal::Unknown => continue,
            };
            state.in_flight += 1;
            drop(state);
            return Ok(Some(Taken::new(arena, allocation, stripe, recorded)));
        }
        Ok(None)
    }

    /// Holds the allocation around `[address, address + length)`. ERR_ARENA_ADDRESS where that is not inside one live allocation.
    pub fn pin(self: &Arc<Self>, address: usize, length: usize) -> Result<Pin> {
        let (stripe, allocation) = self.hold(address, length, |ledger| ledger.pin(address, length))?;
        Ok(Pin::new(Arc::clone(self), stripe, allocation.address))
    }

    /// `hold` in the stripe that knows the live allocation around `[address, address + length)`. ERR_ARENA_ADDRESS, ERR_ARENA_CLOSED.
    fn hold(&self, address: usize, length: usize, hold: impl Fn(&mut Ledger) -> Option<Allocation>) -> Result<(usize, Allocation)> {
        for stripe in self.stripes_from_own() {
            let mut state = self.lock(stripe);
            if state.closed {
                drop(state);
                return Err(self.closed());
            }
            if let Some(allocation) = hold(&mut state.ledger) {
                return Ok((stripe, allocation));
            }
        }
        Err(no_allocation(address, length))
    }

    /// Ends a hold. `let_go` gives the allocation that was freed before and that nobody holds any more: its memory goes now, and there is nobody to tell
    /// of a failure.
    fn let_go(&self, stripe: usize, let_go: impl FnOnce(&mut Ledger) -> Option<Allocation>) {
        let mut state = self.lock(stripe);
        let Some(allocation) = let_go(&mut state.ledger) else { return };
        let closed = state.closed;
        if !closed {
            state.in_flight += 1;
        } else if !state.drained {
            self.before_release.fetch_add(1, Ordering::SeqCst);
        }
        drop(state);
        let _ = self.deallocate(allocation);
        if closed {
            let _ = self.release_after_last();
        } else {
            self.leave(stripe);
        }
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

    /// Closes an arena over a native backend. False when it was closed before. Raises the first error; the arena is closed all the same.
    /// ERR_ARENA_BUSY while anything is pinned, allocated or freed: the arena stays open.
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

    /// The first half of a close: no work is in flight, and none begins. None when it was closed before; ERR_ARENA_BUSY as `close`.
    pub fn begin_close<A: Deref<Target = Arena>>(arena: A) -> Result<Option<Closing<A>>> {
        // All locks at once, in the one order there is: pins and work in flight are looked at and the state is changed as one step.
        let mut states: Vec<_> = (0..arena.stripes.len()).map(|stripe| arena.lock(stripe)).collect();
        if states[0].closed {
            return Ok(None);
        }
        if let Some(allocation) = states.iter().find_map(|state| state.ledger.any_pinned()) {
            drop(states);
            return Err(busy("close", allocation));
        }
        if states.iter().any(|state| state.in_flight > 0) {
            drop(states);
            return Err(arena.in_flight());
        }
        arena.before_release.store(1, Ordering::SeqCst);
        for state in &mut states {
            state.closed = true;
        }
        drop(states);
        Ok(Some(Closing::new(arena)))
    }

    /// Gives back what `drain` took out, going on after errors, and the address space unless some is left. All errors, in order.
    fn finish_close(&self, out: Vec<Allocation>) -> Vec<Error> {
        let mut errors: Vec<Error> = out.into_iter().filter_map(|allocation| self.deallocate(allocation).err()).collect();
        errors.extend(self.release_after_last().err());
        errors
    }

    /// Takes out what nobody sees, in the order of addresses.
    fn drain(&self) -> Vec<Allocation> {
        let mut out = Vec::new();
        for stripe in 0..self.stripes.len() {
            let mut state = self.lock(stripe);
            let (allocations, held) = state.ledger.drain();
            self.before_release.fetch_add(held, Ordering::SeqCst);
            state.drained = true;
            out.extend(allocations);
        }
        out.sort_unstable_by_key(|allocation| allocation.address);
        out
    }

    fn deallocate(&self, Allocation { address, bytes, handle }: Allocation) -> Result<()> {
        self.native_backend()?.deallocate(address, bytes, handle)
    }

    /// Gives the address space of a closed arena back, unless something still stands before it.
    fn release_after_last(&self) -> Result<()> {
        if self.before_release.fetch_sub(1, Ordering::SeqCst) > 1 {
            return Ok(());
        }
        self.native_backend()?.release_reserve(self.base, self.total_bytes)
    }

    #[inline]
    fn leave(&self, stripe: usize) {
        self.lock(stripe).in_flight -= 1;
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
    fn in_flight(&self) -> Error {
        let base = self.base;
        let message = format!(
            "close: an allocation of the arena at {base:#x} is being made or given back right now: await it, or end the calls of other threads (setActiveArena(null)), and close the arena then"
        );
        Error::new("ERR_ARENA_BUSY", message).with("operation", "close").with("address", format!("{base:#x}"))
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
    /// Nobody can hold or use anything of it any more, so that nothing is waited for.
    fn drop(&mut self) {
        if self.backend.is_some() && !self.lock(0).closed {
            self.before_release.store(1, Ordering::SeqCst);
            self.finish_close(self.drain());
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
